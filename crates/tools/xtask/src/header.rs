use anyhow::Result;
use xshell::cmd;

use crate::{
    context::{Context, Needed},
    test::Test,
};

const NEEDED: [Needed; 6] = [
    ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64-win32"),
    ("x86_64-w64-mingw32-g++", "g++-mingw-w64-x86-64-win32"),
    ("clang", "clang"),
    ("lld-link", "lld"),
    ("llvm-dlltool", "llvm"),
    ("patch", "patch"),
];

/// Compiles the headers for consumers, and builds and runs the sample in C
///
/// Compiles crates/consumer/control/include/softndk.h as C and as C++ and compares it with the Rust crate; compiles
/// crates/abi/ndkpi/include and compares it with the facts; runs the sample in C and its wrong variants in the simulated kernel; builds
/// their images with both compilers. A minute, if `cargo test` has built its tests. Installs Debian's compilers, with their DDK headers,
/// if they are missing.
#[derive(clap::Args)]
pub struct Header {
    /// Only install the compilers: the tests of `cargo test` and `cargo xtask test` use what there is of them, and insist on them if
    /// SOFTNDK_REQUIRE_HEADER is 1
    #[arg(long)]
    compilers: bool,
}

impl Header {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need(&NEEDED)?;
        let sh = &context.sh;
        if self.compilers {
            return Ok(());
        }
        let _required = sh.push_env("SOFTNDK_REQUIRE_HEADER", "1");
        Test { programs: ["ndkpi_header", "driver_header", "runs"].map(str::to_owned).into(), filter: Vec::new() }
            .run(context)?;
        cmd!(sh, "samples/consumer-c/build.sh").run()?;
        cmd!(sh, "samples/consumer-c/build.sh --compiler mingw --out target/consumer-c-mingw").run()?;
        Ok(())
    }
}
