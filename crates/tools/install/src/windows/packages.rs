//! The driver store, as files.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

use super::calls;
use crate::{Driver, Fault, Inf, Result, Staged, package::look};

/// A file that could not be dealt with.
pub fn fault(call: &'static str, path: &Path, error: &io::Error) -> Fault {
    let code = error.raw_os_error().unwrap_or_default().cast_unsigned();
    Fault::new(call, code, format!("{}: {error}", path.display()))
}

/// The packages of the driver: the store has the INFs as `oem*.inf`, and says where the files of each are.
pub fn staged(driver: &Driver) -> Result<Vec<Staged>> {
    let folder = calls::windows_folder()?.join("INF");
    let mut found = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) => return Err(fault("list", &folder, &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| fault("list", &folder, &error))?;
        let Some(name) = entry.file_name().to_str().map(str::to_lowercase) else { continue };
        let is_package = name.starts_with("oem") && Path::new(&name).extension().is_some_and(|kind| kind == "inf");
        if !is_package {
            continue;
        }
        // Thousands of others may be there: only ours is asked for. Its INF is the same in both places.
        let Ok(bytes) = fs::read(entry.path()) else { continue };
        let Ok(inf) = Inf::parse(&bytes) else { continue };
        if !inf.hardware_ids.iter().any(|id| id.eq_ignore_ascii_case(driver.hardware_id)) {
            continue;
        }
        let path = calls::place_in_store(&name)?;
        let (_, fingerprint) = look(&path, driver).map_err(|text| Fault::new("read", 0, text))?;
        found.push(Staged { name, version: inf.version, path, fingerprint });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// The INF of a package where Windows has installed it from.
pub fn installed(package: &Staged) -> Result<PathBuf> {
    Ok(calls::windows_folder()?.join("INF").join(&package.name))
}

/// Copies a package out of the store.
pub fn keep(driver: &Driver, package: &Staged) -> Result<PathBuf> {
    let from = package.path.parent().unwrap_or(&package.path);
    let to = env::temp_dir().join(format!("softndk-{}-{}-{}", driver.name, process::id(), package.name));
    fs::create_dir_all(&to).map_err(|error| fault("make", &to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| fault("list", from, &error))? {
        let path = entry.map_err(|error| fault("list", from, &error))?.path();
        // Windows compiles an INF to a PNF beside it, and makes its own again.
        let compiled = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pnf"));
        if let Some(name) = path.file_name().filter(|_| path.is_file() && !compiled) {
            fs::copy(&path, to.join(name)).map_err(|error| fault("copy", &path, &error))?;
        }
    }
    Ok(to.join(driver.inf()))
}
