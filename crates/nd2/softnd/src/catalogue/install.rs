//! To install, to remove, and to look.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
};

use ndkpi::GUID;

use crate::catalogue::{Entry, Family, Version, WinsockError};

/// What the library is called.
const LIBRARY: &str = "softnd.dll";

/// The catalogue of programs of 64 bits, or of 32 bits, and the directories of the system.
pub trait WinsockCatalogue {
    /// Every entry.
    ///
    /// # Errors
    ///
    /// What Winsock says.
    fn entries(&self, bits: u8) -> Result<Vec<Entry>, WinsockError>;

    /// The path of a provider's library.
    ///
    /// # Errors
    ///
    /// What Winsock says.
    fn path(&self, bits: u8, provider: &GUID) -> Result<PathBuf, WinsockError>;

    /// Adds a provider with its entries: to the catalogue of 64 bits, and to that of 32 bits too if `both`.
    ///
    /// # Errors
    ///
    /// What Winsock says.
    fn add(&self, provider: &GUID, path: &Path, entries: &[Entry], both: bool) -> Result<(), WinsockError>;

    /// Removes a provider from a catalogue.
    ///
    /// # Errors
    ///
    /// What Winsock says.
    fn remove(&self, bits: u8, provider: &GUID) -> Result<(), WinsockError>;

    /// The directory of libraries of so many bits.
    fn directory(&self, bits: u8) -> PathBuf;

    /// The path under which programs of either size find what is in the directory of their own size.
    fn shared_directory(&self) -> PathBuf {
        self.directory(64)
    }

    /// Copies a file.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Deletes a file.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn delete(&self, path: &Path) -> io::Result<()>;
}

/// A provider of NetworkDirect, as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Programs of how many bits find it.
    pub bits: u8,
    /// Its version of the interface.
    pub version: Version,
    /// Its family of addresses.
    pub family: Family,
    /// Its name.
    pub name: String,
    /// The provider.
    pub provider: GUID,
    /// The path of its library, or why there is none.
    pub path: String,
    /// It is `softnd.dll`'s.
    pub own: bool,
}

fn is_own(provider: &GUID) -> bool {
    Version::ALL.iter().any(|version| version.provider() == *provider)
}

/// Every provider of NetworkDirect.
///
/// # Errors
///
/// Why the catalogue cannot be read.
pub fn list(system: &impl WinsockCatalogue) -> Result<Vec<Listed>, String> {
    let mut all = Vec::new();
    for bits in [64, 32] {
        let entries = system.entries(bits).map_err(|error| format!("the catalogue of {bits} bits: {error}"))?;
        for entry in entries.iter().filter(|entry| entry.is_network_direct()) {
            let (Some(version), Some(family)) = (entry.version(), entry.family()) else { continue };
            let provider = entry.provider();
            let path = system.path(bits, &provider);
            let path = path.map_or_else(|error| error.to_string(), |path| path.display().to_string());
            let own = is_own(&provider);
            all.push(Listed { bits, version, family, name: entry.name(), provider, path, own });
        }
    }
    Ok(all)
}

fn why(what: impl Display, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        format!("{what}: not allowed: run it as administrator")
    } else {
        format!("{what}: {error}")
    }
}

/// Copies the library into the directories of the system, where only administrators write, and registers both versions.
///
/// Without a library of 32 bits, programs of 32 bits find nothing. Returns what has been done, a line for each.
///
/// # Errors
///
/// In one line what is in the way, and what to do next. Nothing is left behind then.
pub fn install(
    system: &impl WinsockCatalogue,
    library: &Path,
    library_32: Option<&Path>,
) -> Result<Vec<String>, String> {
    if let Some(found) = list(system)?.into_iter().find(|listed| listed.own) {
        return Err(format!("already installed: {}; `ndkctl nd2 uninstall` removes it", found.path));
    }
    let mut undo = Undo { system, files: Vec::new(), providers: Vec::new() };
    let mut lines = Vec::new();
    for (bits, from) in [(64, Some(library)), (32, library_32)] {
        let Some(from) = from else { continue };
        let to = system.directory(bits).join(LIBRARY);
        system.copy(from, &to).map_err(|error| why(format_args!("{} to {}", from.display(), to.display()), &error))?;
        lines.push(format!("copied {} to {}", from.display(), to.display()));
        undo.files.push(to);
    }
    let (path, both) = (system.shared_directory().join(LIBRARY), library_32.is_some());
    for version in Version::ALL {
        let entries = Family::ALL.map(|family| Entry::of(version, family));
        let added = system.add(&version.provider(), &path, &entries, both);
        added.map_err(|error| format!("registering version {version}: {error}"))?;
        undo.providers.push(version.provider());
        let bits = if both { "64 and 32 bits" } else { "64 bits" };
        lines.push(format!("registered version {version} for programs of {bits}: {}", path.display()));
    }
    undo.keep();
    Ok(lines)
}

/// What an installation has done so far. Dropped, it is undone.
struct Undo<'a, S: WinsockCatalogue> {
    system: &'a S,
    files: Vec<PathBuf>,
    providers: Vec<GUID>,
}

impl<S: WinsockCatalogue> Undo<'_, S> {
    fn keep(mut self) {
        self.files.clear();
        self.providers.clear();
    }
}

impl<S: WinsockCatalogue> Drop for Undo<'_, S> {
    fn drop(&mut self) {
        // As far as it goes: what has failed first is what is told.
        for provider in &self.providers {
            for bits in [64, 32] {
                let _ = self.system.remove(bits, provider);
            }
        }
        for file in &self.files {
            let _ = self.system.delete(file);
        }
    }
}

/// Removes what [`install`] has made. Returns what has been done, a line for each.
///
/// # Errors
///
/// In one line what is in the way; `not installed` if there is nothing to remove.
pub fn uninstall(system: &impl WinsockCatalogue) -> Result<Vec<String>, String> {
    let mut own: Vec<_> = list(system)?.into_iter().filter(|listed| listed.own).collect();
    if own.is_empty() {
        return Err("not installed: `ndkctl nd2 list` shows what is".to_owned());
    }
    own.dedup_by_key(|listed| (listed.bits, listed.provider));
    let mut lines = Vec::new();
    for Listed { bits, version, provider, .. } in &own {
        let removed = system.remove(*bits, provider);
        removed.map_err(|error| format!("removing version {version}, {bits} bits: {error}"))?;
        lines.push(format!("removed version {version} for programs of {bits} bits"));
    }
    for bits in [64, 32] {
        let file = system.directory(bits).join(LIBRARY);
        match system.delete(&file) {
            Ok(()) => lines.push(format!("deleted {}", file.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A program may have it loaded.
            Err(error) => lines.push(format!("left {}: {error}", file.display())),
        }
    }
    Ok(lines)
}
