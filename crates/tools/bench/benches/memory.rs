//! Bytes of objects that do nothing. `cargo bench -p bench --bench memory`, with `-- --quick` to see that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Memory);
}
