use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use anyhow::Result;
use regex::Regex;
use xshell::cmd;

use crate::context::Context;

/// The headers that declare routines of the kernel.
const HEADERS: [&str; 11] =
    ["wdm", "ntddk", "ntifs", "ndis", "nbl", "nblapi", "ndisndk", "netioapi", "wsk", "wmistr", "evntrace"];

/// Names the routines that drivers of others call, and images cannot import here
///
/// Each line: how many folders of sources name a routine, and its header. A name that headers define as a macro or inline function is
/// listed too: an image does not import it. Minutes for all of Microsoft's samples.
#[derive(clap::Args)]
pub struct Routines {
    /// A git directory of drivers' sources, such as Microsoft's samples
    sources: PathBuf,
    /// A git directory of the public DDI reference, which says what is a routine
    ddi: PathBuf,
    /// Only what is below, such as network/wsk
    folders: Vec<String>,
}

impl Routines {
    pub fn run(&self, context: &Context) -> Result<()> {
        let (sh, sources, ddi, folders) = (&context.sh, &self.sources, &self.ddi, &self.folders);
        let pages = cmd!(sh, "git -C {ddi} ls-tree -r --name-only HEAD").quiet().read()?;
        let headers = headers(&pages)?;
        let here = here(&sh.read_file("crates/simulator/image-loader/src/routines.rs")?)?;
        let call = Regex::new(r"\b([A-Z]\w{4,})\s*\(")?;
        let mut calls: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
        let tree = cmd!(sh, "git -C {sources} ls-tree -r --name-only HEAD {folders...}").quiet().read()?;
        for path in tree.lines().map(Path::new) {
            if !path.extension().is_some_and(|end| ["c", "cpp", "h", "hpp"].iter().any(|source| end == *source)) {
                continue;
            }
            let blob = format!("HEAD:{}", path.display());
            let text = cmd!(sh, "git -C {sources} show {blob}").quiet().output()?.stdout;
            for found in call.captures_iter(&String::from_utf8_lossy(&text)) {
                if headers.contains_key(&found[1].to_lowercase()) && !here.contains(&found[1]) {
                    let folder = path.parent().unwrap_or(path).to_owned();
                    calls.entry(found[1].to_owned()).or_default().insert(folder);
                }
            }
        }
        let mut sorted: Vec<_> = calls.iter().collect();
        sorted.sort_by_key(|(_, folders)| std::cmp::Reverse(folders.len()));
        for (name, folders) in sorted {
            println!("{:4} {name} ({}.h)", folders.len(), headers[&name.to_lowercase()]);
        }
        Ok(())
    }
}

/// The routines that have a page in the reference, in small letters, and the header of each.
fn headers(pages: &str) -> Result<BTreeMap<String, String>> {
    let page = Regex::new(r"/nf-(\w+?)-(\w+)\.md$")?;
    let found = pages.lines().filter_map(|path| page.captures(path)).filter(|found| HEADERS.contains(&&found[1]));
    Ok(found.map(|found| (found[2].to_owned(), found[1].to_owned())).collect())
}

/// The routines that images can import here.
fn here(table: &str) -> Result<HashSet<String>> {
    let row = Regex::new(r#"(?m)^ {16}(\w+)$|^ {4}\(?"(\w+)""#)?;
    let name = |found: regex::Captures<'_>| found.get(1).or_else(|| found.get(2)).map(|name| name.as_str().to_owned());
    Ok(row.captures_iter(table).filter_map(name).collect())
}
