//! Control codes with anything in them, from several processes that end in between. `cargo xtask fuzz` does the same by libFuzzer.

use std::collections::BTreeSet;

use crate::actor::{Random, life};

#[test]
fn nothing_that_programs_send_breaks_the_driver_or_leaves_something_behind() {
    let mut reached = BTreeSet::new();
    for seed in 1..25_u64 {
        let verbs = life(seed, 300, &mut Random::seeded(seed));
        reached.extend(verbs.iter().map(|verb| format!("{verb:?}")));
    }
    // Else this would say nothing.
    assert!(reached.len() > 30, "only these were carried out: {reached:?}");
}

#[test]
fn a_fuzzers_bytes_reach_the_driver_too() {
    let bytes: Vec<u8> =
        (0..4000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let reached: BTreeSet<_> = life(1, 300, &mut Random::of(&bytes)).iter().map(|verb| format!("{verb:?}")).collect();
    assert!(reached.len() > 5, "only these were carried out: {reached:?}");
    assert!(life(1, 300, &mut Random::of(&[])).is_empty());
}
