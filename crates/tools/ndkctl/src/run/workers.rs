//! The processes that run images: this program on Windows, a program for Windows under Wine elsewhere.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// How workers are started.
pub struct Starter {
    /// This program, or the one for Windows.
    program: PathBuf,
    /// Where Wine keeps what it needs, if nobody has said.
    #[cfg(not(windows))]
    prefix: Option<PathBuf>,
}

#[cfg(windows)]
impl Starter {
    /// Finds the program.
    pub fn find() -> Result<Self, String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err("driver images run in a process for x64: use ndkctl for x64".to_owned());
        }
        let program = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
        Ok(Self { program })
    }

    fn start(&self) -> Command {
        Command::new(&self.program)
    }
}

#[cfg(not(windows))]
impl Starter {
    /// Finds the program for Windows, and Wine.
    pub fn find() -> Result<Self, String> {
        let program = windows_program()?;
        if !is_in_path("wine") {
            return Err("driver images run under Wine here: install it (Debian: apt-get install wine)".to_owned());
        }
        let prefix = match std::env::var_os("WINEPREFIX") {
            Some(_) => None,
            None => Some(program.with_file_name("prefix")),
        };
        let starter = Self { program, prefix };
        starter.prepare()?;
        Ok(starter)
    }

    /// Has Wine make its prefix, before several workers would at the same time.
    fn prepare(&self) -> Result<(), String> {
        let Some(prefix) = self.prefix.as_ref().filter(|prefix| !prefix.join("system.reg").exists()) else {
            return Ok(());
        };
        let made = self.wine().args(["wineboot", "--init"]).output().map_err(|error| format!("wine: {error}"))?;
        if made.status.success() {
            return Ok(());
        }
        Err(format!("Wine does not start with WINEPREFIX={}: {}", prefix.display(), made.status))
    }

    fn wine(&self) -> Command {
        let mut command = Command::new("wine");
        command.env("WINEDLLOVERRIDES", "mscoree,mshtml=");
        if std::env::var_os("WINEDEBUG").is_none() {
            command.env("WINEDEBUG", "-all");
        }
        if let Some(prefix) = &self.prefix {
            command.env("WINEPREFIX", prefix);
        }
        command
    }

    fn start(&self) -> Command {
        let mut command = self.wine();
        command.arg(&self.program);
        command
    }
}

impl Starter {
    /// The command of a worker.
    pub fn command(&self, trace: bool) -> Command {
        let mut command = self.start();
        command.args(["run", "--worker"]);
        // Ctrl-C is for this program, which ends its workers.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        if trace {
            command.env("SIMULATED_KERNEL_TRACE", "1");
        }
        command
    }
}

/// A file as workers open it: Wine has the whole file system as its drive Z.
pub fn path(file: &Path) -> PathBuf {
    if cfg!(windows) {
        return file.to_owned();
    }
    PathBuf::from(format!("Z:{}", file.to_string_lossy().replace('/', "\\")))
}

/// Names the program for Windows, wherever it is.
#[cfg(not(windows))]
const VARIABLE: &str = "NDKCTL_WORKER";

/// The program for Windows.
#[cfg(not(windows))]
fn windows_program() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        let named = PathBuf::from(named);
        let problem = || format!("{VARIABLE} is {}, which is no file", named.display());
        return if named.is_file() { Ok(named.clone()) } else { Err(problem()) };
    }
    let own = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    // Beside it, or where cargo xtask worker puts it: target/runner, if this is target/debug/ndkctl or target/release/ndkctl.
    let beside = own.with_file_name("ndkctl-worker.exe");
    let built = own.ancestors().nth(2).map(|target| target.join("runner").join("worker.exe"));
    [Some(beside), built].into_iter().flatten().find(|path| path.is_file()).ok_or_else(|| {
        format!("driver images run in a program for Windows, which is not here: make it with cargo xtask worker, or set {VARIABLE}")
    })
}

#[cfg(not(windows))]
fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// What a worker does: the job that comes by its standard input.
pub fn work() -> Result<(), String> {
    #[cfg(all(windows, target_arch = "x86_64"))]
    {
        let job = runner::worker::Job::read(std::io::stdin().lock())?;
        script_machine::images::work(&job)
    }
    #[cfg(not(all(windows, target_arch = "x86_64")))]
    Err("workers run on Windows for x64".to_owned())
}
