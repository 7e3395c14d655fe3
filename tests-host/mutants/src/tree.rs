//! The copy of the repository that the mutants are written into, and its test programs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::BufReader,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{
    Message,
    diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan},
};

use crate::{mutant::Mutant, weave::weave};

/// What the crates ask whether a mutant is on: those that do not depend on this one do so in the copy.
const CHOOSER: &str = "crates/provider/fallible/src/lib.rs";
const CHOOSER_TEXT: &str = include_str!("chooser.rs");
/// It is asked in constants too.
const CHOOSER_FEATURES: &str = "#![feature(core_intrinsics, const_eval_select)]\n";

/// A program with tests in it.
pub struct Program {
    /// The package's folder, in which cargo runs it.
    pub folder: PathBuf,
    /// The program itself.
    pub path: PathBuf,
}

/// A manifest with the dependency that has the chooser.
fn with_chooser(manifest: &str) -> Result<String> {
    const CRATE: &str = "fallible";
    const HEADING: &str = "[dependencies]\n";
    let parsed: toml::Table = toml::from_str(manifest)?;
    let name = |table: &str, key: &str| parsed.get(table).and_then(|table| table.get(key));
    if name("dependencies", CRATE).is_some() || name("package", "name").is_some_and(|name| name.as_str() == Some(CRATE))
    {
        return Ok(manifest.to_owned());
    }
    let dependency = format!("{HEADING}{CRATE}.workspace = true\n");
    if manifest.contains(HEADING) {
        return Ok(manifest.replacen(HEADING, &dependency, 1));
    }
    Ok(format!("{manifest}\n{dependency}"))
}

/// The copy.
pub struct Tree {
    root: PathBuf,
    /// Mutants by file, with their numbers.
    files: BTreeMap<String, Vec<(usize, Mutant)>>,
    /// The numbers of the mutants that no program has.
    left_out: HashSet<usize>,
    /// What mutants have written, by file.
    written: HashMap<String, Vec<(usize, Range<usize>)>>,
}

impl Tree {
    /// Copies the files that git knows, and those that it would know, from `source` to `root`. What has not changed is not written,
    /// so that cargo need not build it again. Mutants are numbered from 1, in their order; `left_out` are not woven.
    ///
    /// # Errors
    ///
    /// Files cannot be read or written.
    pub fn copy(source: &Path, root: PathBuf, mutants: &[Mutant], left_out: HashSet<usize>) -> Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(source)
            .output()
            .context("git ls-files")?;
        ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
        let names: Vec<&str> =
            std::str::from_utf8(&listed.stdout)?.split('\0').filter(|name| source.join(name).is_file()).collect();

        let mut files: BTreeMap<String, Vec<(usize, Mutant)>> = BTreeMap::new();
        for (index, mutant) in mutants.iter().enumerate() {
            files.entry(mutant.file.clone()).or_default().push((index + 1, mutant.clone()));
        }
        let mut tree = Self { root, files, left_out, written: HashMap::new() };
        for name in names {
            // These are written with their mutants.
            if name == CHOOSER || tree.files.contains_key(name) {
                continue;
            }
            let content = fs::read(source.join(name))?;
            if tree.has_mutants(name) {
                let manifest = String::from_utf8(content).with_context(|| name.to_owned())?;
                tree.write(name, with_chooser(&manifest).with_context(|| name.to_owned())?.as_bytes())?;
            } else {
                tree.write(name, &content)?;
            }
        }
        let mut originals = BTreeMap::new();
        for name in tree.files.keys().map(String::as_str).chain([CHOOSER]) {
            originals.insert(name.to_owned(), fs::read_to_string(source.join(name))?);
        }
        for (name, text) in &originals {
            tree.weave(name, text)?;
        }
        Ok(tree)
    }

    /// The numbers of the mutants that no program has: of constants, and those that do not compile.
    #[must_use]
    pub const fn left_out(&self) -> &HashSet<usize> {
        &self.left_out
    }

    /// True if `name` is the manifest of a crate with mutants.
    fn has_mutants(&self, name: &str) -> bool {
        let folder = name.strip_suffix("Cargo.toml").filter(|folder| !folder.is_empty());
        folder.is_some_and(|folder| self.files.keys().any(|file| file.starts_with(folder)))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.root.join(name);
        if fs::read(&path).is_ok_and(|existing| existing == content) {
            return Ok(());
        }
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        fs::write(&path, content).with_context(|| path.display().to_string())
    }

    /// Writes a file with those of its mutants that are not left out.
    fn weave(&mut self, name: &str, text: &str) -> Result<()> {
        let mutants: Vec<(usize, &Mutant)> = (self.files.get(name).into_iter().flatten())
            .filter(|(number, _)| !self.left_out.contains(number))
            .map(|(number, mutant)| (*number, mutant))
            .collect();
        let on = if name.starts_with("crates/provider/fallible/") {
            "crate::mutants::on"
        } else {
            "::fallible::mutants::on"
        };
        let mut woven = weave(text, &mutants, on).with_context(|| name.to_owned())?;
        if name == CHOOSER {
            woven.text.insert_str(0, CHOOSER_FEATURES);
            for (_, range) in &mut woven.written {
                *range = range.start + CHOOSER_FEATURES.len()..range.end + CHOOSER_FEATURES.len();
            }
            woven.text.push_str("\n/// Chooses a mutant.\npub mod mutants {\n");
            woven.text.push_str(CHOOSER_TEXT);
            woven.text.push_str("}\n");
        }
        self.write(name, woven.text.as_bytes())?;
        self.left_out.extend(woven.constant);
        self.written.insert(name.to_owned(), woven.written);
        Ok(())
    }

    /// Builds the programs of `cargo test`'s `arguments`. A mutant that does not compile is left out, and it is tried again, until
    /// what is left compiles. `say` is told how many were left out.
    ///
    /// # Errors
    ///
    /// It does not compile for another reason than a mutant.
    pub fn build(&mut self, source: &Path, arguments: &[String], say: impl Fn(usize)) -> Result<Vec<Program>> {
        loop {
            let (programs, wrong) = self.compile(arguments)?;
            if wrong.is_empty() {
                return Ok(programs);
            }
            say(wrong.len());
            let names: HashSet<&String> = self
                .files
                .iter()
                .filter(|(_, of)| of.iter().any(|(number, _)| wrong.contains(number)))
                .map(|(name, _)| name)
                .collect();
            let names: Vec<String> = names.into_iter().cloned().collect();
            self.left_out.extend(wrong);
            for name in names {
                let text = fs::read_to_string(source.join(&name))?;
                self.weave(&name, &text)?;
            }
        }
    }

    /// Compiles once. Returns the programs, and the mutants that do not compile: there are no programs then.
    fn compile(&self, arguments: &[String]) -> Result<(Vec<Program>, HashSet<usize>)> {
        let mut cargo = Command::new("cargo")
            .args(["test", "--no-run", "--quiet", "--message-format=json"])
            .args(arguments)
            .current_dir(&self.root)
            // Mutants may be as ugly as they like.
            .env("RUSTFLAGS", "--cap-lints=allow")
            // For the features of the one that has the chooser.
            .env("RUSTC_BOOTSTRAP", "fallible")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cargo test")?;
        let output = BufReader::new(cargo.stdout.take().context("the output is piped")?);

        let (mut programs, mut wrong, mut unknown) = (Vec::new(), HashSet::new(), Vec::new());
        for message in Message::parse_stream(output) {
            match message? {
                Message::CompilerArtifact(artifact) if artifact.profile.test => {
                    if let Some(path) = artifact.executable {
                        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
                        programs.push(Program { folder: folder.into(), path: path.into() });
                    }
                }
                Message::CompilerMessage(message) if message.message.level == DiagnosticLevel::Error => {
                    let culprits = self.culprits(&message.message);
                    // The last one only counts the others.
                    if culprits.is_empty() && !message.message.spans.is_empty() {
                        unknown.push(message.message.rendered.unwrap_or(message.message.message));
                    }
                    wrong.extend(culprits);
                }
                _ => {}
            }
        }
        let status = cargo.wait()?;
        if !status.success() && wrong.is_empty() {
            bail!("the tree does not compile:\n{}", unknown.join("\n"));
        }
        Ok((programs, wrong))
    }

    /// The mutants that an error is about: those that its places are in, else those that lie between its places.
    fn culprits(&self, error: &Diagnostic) -> HashSet<usize> {
        let spans = || error.spans.iter().chain(error.children.iter().flat_map(|child| &child.spans));
        let among = |is_meant: &dyn Fn(&DiagnosticSpan, &Range<usize>) -> bool| {
            let mut found = HashSet::new();
            for span in spans() {
                let written = self.written.get(&span.file_name).into_iter().flatten();
                found.extend(written.filter(|(_, range)| is_meant(span, range)).map(|(number, _)| *number));
            }
            found
        };
        let is_in = |span: &DiagnosticSpan, range: &Range<usize>| range.contains(&(span.byte_start as usize));
        let primary = among(&|span, range| span.is_primary && is_in(span, range));
        if !primary.is_empty() {
            return primary;
        }
        let other = among(&is_in);
        if !other.is_empty() {
            return other;
        }
        let first = |file: &str| spans().filter(|span| span.file_name == file).map(|span| span.byte_start).min();
        let last = |file: &str| spans().filter(|span| span.file_name == file).map(|span| span.byte_end).max();
        among(&|span, range| {
            first(&span.file_name).is_some_and(|first| first as usize <= range.start)
                && last(&span.file_name).is_some_and(|last| range.end <= last as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::with_chooser;

    #[test]
    fn a_crate_without_the_chooser_gets_it_once() {
        let without = "[package]\nname = \"crc32\"\n\n[dependencies]\nserde = \"1\"\n";
        let with = with_chooser(without).unwrap();
        assert!(with.ends_with("[dependencies]\nfallible.workspace = true\nserde = \"1\"\n"), "{with}");
        assert_eq!(with_chooser(&with).unwrap(), with);
        let itself = "[package]\nname = \"fallible\"\n[dependencies]\n";
        assert_eq!(with_chooser(itself).unwrap(), itself);
        let none = "[package]\nname = \"delay\"\n";
        assert_eq!(with_chooser(none).unwrap(), format!("{none}\n[dependencies]\nfallible.workspace = true\n"));
        assert!(with_chooser("[package").is_err());
    }
}
