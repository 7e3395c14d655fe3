//! A package as it was built, and the certificate that it was signed with.

use std::{
    fs,
    hash::{DefaultHasher, Hasher as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Driver, Inf, Processor, Version};

/// A certificate in its binary form (DER).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// Its bytes.
    pub der: Arc<[u8]>,
    /// The file that it is from.
    pub path: PathBuf,
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    ///
    /// One line: there is no such file, or it is no certificate in binary form.
    pub fn read(path: &Path) -> Result<Self, String> {
        let der = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        // A sequence of bytes that has its length in two bytes: every X.509 certificate from 256 bytes to 64 KiB.
        if !der.starts_with(&[0x30, 0x82]) {
            return Err(format!("{}: not a certificate in binary form (DER)", path.display()));
        }
        Ok(Self { der: der.into(), path: path.to_owned() })
    }

    /// The certificate in a folder or in those below it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// One line: it cannot be read, or there are several that differ.
    pub fn find(folder: &Path) -> Result<Option<Self>, String> {
        let mut found: Option<Self> = None;
        for path in files(folder)? {
            if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("cer")) {
                continue;
            }
            let one = Self::read(&path)?;
            if let Some(other) = found.as_ref().filter(|other| other.der != one.der) {
                let (one, other) = (one.path.display(), other.path.display());
                return Err(format!("{other} and {one} are two certificates: choose one (--certificate)"));
            }
            found = found.or(Some(one));
        }
        Ok(found)
    }
}

/// A package as it was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The driver.
    pub driver: &'static Driver,
    /// Its INF.
    pub inf: PathBuf,
    /// Its version.
    pub version: Version,
    /// The processors that it is for.
    pub processors: Vec<Processor>,
    /// What stands for the bytes of its files: two packages of one version are the same only if their files are.
    pub fingerprint: u64,
}

impl Package {
    /// The package of a driver in a folder or in those below it.
    ///
    /// # Errors
    ///
    /// One line: there is none, there are several, or one of its files is missing or is not what it should be.
    pub fn find(folder: &Path, driver: &'static Driver) -> Result<Self, String> {
        let wanted = driver.inf();
        let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(&wanted));
        let infs: Vec<_> = files(folder)?.into_iter().filter(named).collect();
        match infs.as_slice() {
            [] => Err(format!("{}: no {wanted} here or in a folder below", folder.display())),
            [inf] => Self::read(inf, driver),
            [one, other, ..] => {
                let (one, other) = (one.display(), other.display());
                Err(format!("{one} and {other} are two packages of {}: name the folder of one", driver.name))
            }
        }
    }

    fn read(path: &Path, driver: &'static Driver) -> Result<Self, String> {
        let wrong = |error: String| format!("{}: {error}", path.display());
        let (inf, fingerprint) = look(path, driver)?;
        if inf.hardware_ids != [driver.hardware_id] {
            return Err(wrong(format!("it is not for {}", driver.hardware_id)));
        }
        let path = fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
        let inf_path = plain(path);
        Ok(Self { driver, inf: inf_path, version: inf.version, processors: inf.processors, fingerprint })
    }
}

/// The INF of a package, and what stands for the bytes of its files.
///
/// # Errors
///
/// One line: a file is missing, or the INF is wrong.
pub fn look(path: &Path, driver: &Driver) -> Result<(Inf, u64), String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let bytes = read(path)?;
    let inf = Inf::parse(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    let catalog = inf.catalog.as_ref().ok_or_else(|| format!("{}: it names no catalog", path.display()))?;
    let mut hasher = DefaultHasher::new();
    let image = read(&path.with_file_name(format!("{}.sys", driver.name)))?;
    for bytes in [bytes, image, read(&path.with_file_name(catalog))?] {
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    Ok((inf, hasher.finish()))
}

/// The path without the prefix `\\?\` of canonical paths, which `SetupAPI` does not take.
fn plain(path: PathBuf) -> PathBuf {
    let short = path.to_str().and_then(|text| text.strip_prefix(r"\\?\")).map(PathBuf::from);
    short.filter(|short| !short.starts_with("UNC")).unwrap_or(path)
}

/// How deep folders are looked into.
const DEPTH: usize = 4;

/// The files of a folder and of those below it, in the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut found, mut folders) = (Vec::new(), vec![(folder.to_owned(), 0)]);
    while let Some((folder, depth)) = folders.pop() {
        let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let kind = entry.file_type().map_err(wrong)?;
            if kind.is_dir() && depth < DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
