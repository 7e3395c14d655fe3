//! How deep the stack gets in a driver's image.
//!
//! Frames come from the unwind tables, calls from the instructions. A path begins at a function that others can call (the table of Control
//! Flow Guard, and the entry point), follows calls and jumps, and ends where the image is left. A call of Windows counts as its return
//! address.
//!
//! Without rules a path ends at an indirect call too. Of functions that can call each other in a circle each is at most once on a path;
//! where the ways through a circle are too many to be gone through, all its functions count.
//!
//! With rules an indirect call goes to every function of its type, which the compiler's control flow integrity (kcfi) has noted before the
//! function and in front of the call. All destructors have one type. Which of them a call runs follows from the trait of the object: the
//! call's is in the debug information, and a destructor's is that of the other functions in its table. tools/stack-depth.toml has what
//! types do not say. Each rule must be needed, each circle broken, and each call without a function of its type named as one that leaves
//! the image.

mod code;
mod depths;
mod image;
mod rules;
mod types;

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Result, anyhow, ensure};
use code::Code;
use depths::Depths;
use image::Image;
use rules::Rules;
use types::Types;

use crate::{context::Context, drivers::Drivers};

const RULES: &str = "tools/stack-depth.toml";

/// The ways through circles are gone through recursively.
const OWN_STACK: usize = 256 << 20;

/// Adds up how deep the stack gets in the drivers
///
/// Without images: builds the drivers with types, and follows all calls, by tools/stack-depth.toml. Two minutes on two processors the first
/// time, nearly all of it the build. With images: follows their direct calls, which takes seconds. What types do not say is in
/// tools/stack-depth.toml: each rule must be needed.
#[derive(clap::Args)]
pub struct StackDepth {
    /// Print the functions of the deepest path, with their bytes
    #[arg(long)]
    path: bool,
    /// Fail if a path is deeper
    #[arg(long, value_name = "BYTES", default_value_t = 12 << 10)]
    most: u64,
    /// The images were built with types: follow all calls of theirs, too
    #[arg(long, requires = "images")]
    types: bool,
    images: Vec<PathBuf>,
}

impl StackDepth {
    pub fn run(&self, context: &Context) -> Result<()> {
        let rules = || Rules::new(&context.sh.read_file(RULES)?);
        if !self.images.is_empty() {
            return self.examine_all(&self.images, self.types.then(rules).transpose()?);
        }
        Drivers::x86_64(true).run(context)?;
        let image = |name| format!("target/drivers/types/x86_64/{name}.sys").into();
        self.examine_all(&["ndktest", "softndk", "softndknic"].map(image), Some(rules()?))
    }

    fn examine_all(&self, images: &[PathBuf], mut rules: Option<Rules>) -> Result<()> {
        let mut are_shallow = true;
        for image in images {
            let examined = thread::scope(|scope| {
                let examine = || self.examine(image, rules.as_mut());
                thread::Builder::new()
                    .stack_size(OWN_STACK)
                    .spawn_scoped(scope, examine)?
                    .join()
                    .map_err(|_| anyhow!("a panic"))
            });
            are_shallow &= examined??;
        }
        let complaints = rules.map(Rules::complaints).unwrap_or_default();
        ensure!(complaints.is_empty(), "{RULES}: {}", complaints.join("\n"));
        ensure!(are_shallow, "a path is deeper than {} bytes", self.most);
        Ok(())
    }

    /// Returns false if a path is too deep.
    fn examine(&self, path: &Path, mut rules: Option<&mut Rules>) -> Result<bool> {
        let mut code = Code::new(Image::open(path)?)?;
        if let Some(rules) = rules.as_deref_mut() {
            Types::read(&mut code)?.connect(&mut code, rules)?;
            rules.cut(&mut code);
        }
        let limits = rules.as_deref().map(|rules| rules.limits(&code));
        let depths = Depths::new(&code.graph, limits.as_ref());
        if let Some(rules) = rules {
            rules.broke(&code, &depths.used, &depths.unbroken);
        }
        let entries = code.entries();
        let deepest = entries.iter().max_by_key(|entry| depths.depth[*entry]);
        let deepest = *deepest.ok_or_else(|| anyhow!("{}: nothing can be called", path.display()))?;
        let depth = depths.depth[&deepest];
        println!(
            "{}: {} functions, {} of them called from elsewhere",
            path.display(),
            code.graph.own.len(),
            entries.len()
        );
        println!("  largest frame: {} bytes", code.largest_frame);
        println!("  deepest path: {depth} bytes, from {}", code.name(deepest));
        println!(
            "  circles: {}, of {} functions",
            depths.rings.len(),
            depths.rings.iter().map(Vec::len).sum::<usize>()
        );
        if self.path {
            for function in depths.path(deepest) {
                println!("  {:6} {}", code.graph.own[&function], code.name(function));
            }
        }
        if depth > self.most {
            println!("  deeper than {} bytes", self.most);
        }
        Ok(depth <= self.most)
    }
}
