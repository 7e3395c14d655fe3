//! What costs the same however many there are. `cargo bench -p bench --bench scale`, with `-- --quick` to see that it runs.

use bench::{Part, command};

fn main() {
    command::run_part(Part::Scale);
}
