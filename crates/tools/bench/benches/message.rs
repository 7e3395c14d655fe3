//! Messages of eight bytes beside UCX and libfabric. `cargo bench -p bench --bench message`, with `-- --quick` to see that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Message);
}
