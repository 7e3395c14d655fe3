//! RDMA reads and writes, and frames on the cable, beside `memcpy`. `cargo bench -p bench --bench transfer`, with `-- --quick` to see
//! that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Transfer);
}
