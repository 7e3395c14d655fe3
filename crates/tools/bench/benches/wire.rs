//! Packets of RoCEv2 in memory and over UDP. `cargo bench -p bench --bench wire`, with `-- --quick` to see that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Wire);
}
