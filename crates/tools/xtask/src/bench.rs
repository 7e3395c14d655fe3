use std::path::PathBuf;

use anyhow::{Result, bail};
use xshell::cmd;

use crate::context::{Context, Needed};

/// What `ndkctl bench` compares with, and counts with: UCX's and libfabric's own benchmarks, and valgrind.
const PEERS: [Needed; 3] = [("ucx_perftest", "ucx-utils"), ("fi_pingpong", "libfabric-bin"), ("valgrind", "valgrind")];

/// Makes all figures of docs/performance anew
///
/// Some ten minutes on a machine that does nothing else. The table goes into the page between its two comments, beside the plots and
/// results.json. `ndkctl bench` measures; this installs from Debian what it compares with. What cannot be installed is absent from the
/// rows, which say so.
#[derive(clap::Args)]
pub struct Bench {
    /// Only count instructions (callgrind), and fail if there are more than crates/tools/bench/counts.json allows: seconds
    #[arg(long, conflicts_with_all = ["folder", "options"])]
    smoke: bool,
    /// Only install what is compared with
    #[arg(long, conflicts_with_all = ["smoke", "folder", "options"])]
    peers: bool,
    /// Where the page is; that of another folder is made from that of docs/performance
    #[arg(default_value = "docs/performance")]
    folder: PathBuf,
    /// Options of `ndkctl bench`, such as --quick
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

impl Bench {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let needed = if self.smoke { &PEERS[2..] } else { &PEERS };
        if let Err(error) = context.need(needed) {
            eprintln!("{error:#}");
        }
        if self.peers {
            return Ok(());
        }
        if self.smoke {
            return Ok(cmd!(sh, "cargo run --release -- bench --smoke").run()?);
        }
        cmd!(sh, "cargo build --release --bin ndkctl").run()?;
        context.optimised_example(&["kernel-tests"], "driver_suite")?;
        let (folder, options) = (&self.folder, &self.options);
        let (page, results) = (folder.join("README.md"), folder.join("results.json"));
        if sh.path_exists(folder) && !folder.is_dir() {
            bail!("{} is no folder", folder.display());
        }
        sh.create_dir(folder)?;
        if !sh.path_exists(&page) {
            sh.copy_file("docs/performance/README.md", &page)?;
        }
        let bench =
            cmd!(sh, "cargo run --release -- bench --json {results} --report {page} --plots {folder} {options...}");
        Ok(bench.run()?)
    }
}
