//! What this machine can do at best. `cargo bench -p bench --bench machine`, with `-- --quick` to see that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Machine);
}
