//! Completion queues beside other queues. `cargo bench -p bench --bench cq`, with `-- --quick` to see that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Cq);
}
