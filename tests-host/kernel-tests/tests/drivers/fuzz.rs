//! What the fuzzer does, for a while and with the same numbers every time (`cargo xtask fuzz` goes on where this ends).

use crate::{exercise, rows};

#[test]
fn any_control_code_is_answered() {
    rows::each("control_codes", exercise::control_codes);
}

#[test]
fn any_query_for_an_interface_is_answered() {
    rows::each("query_interface", exercise::query_interface);
}
