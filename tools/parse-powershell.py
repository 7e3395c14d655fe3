#!/usr/bin/env python3
"""Parses tools/windows/*.ps1 and the PowerShell steps of the workflows: a typing mistake is found before a machine runs it.

Started by cargo xtask workflows, which brings the grammar. That does not know lists of words without quotation marks
(`Format-Table Name, Length`): write the marks.
"""

import pathlib
import sys

import tree_sitter
import tree_sitter_powershell
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHELLS = ("pwsh", "powershell")


def steps(workflow):
    """The PowerShell steps of a workflow: name and script."""
    for name, job in workflow.get("jobs", {}).items():
        usual = job.get("defaults", {}).get("run", {}).get("shell", "")
        for number, step in enumerate(job.get("steps", []), 1):
            if "run" in step and step.get("shell", usual) in SHELLS:
                yield f"{name}, step {number} ({step.get('name', 'without a name')})", step["run"]


def faults(node):
    """The innermost places that the grammar does not understand."""
    inner = [fault for child in node.children if child.has_error for fault in faults(child)]
    if node.is_error or node.is_missing:
        return inner or [node]
    return inner


def main():
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
    scripts = [(str(path.relative_to(ROOT)), path.read_text()) for path in sorted(ROOT.glob("tools/windows/*.ps1"))]
    for path in sorted(ROOT.glob(".github/workflows/*.yml")):
        workflow = yaml.safe_load(path.read_text())
        scripts += [(f"{path.name}: {place}", script) for place, script in steps(workflow)]
    wrong = 0
    for place, script in scripts:
        tree = parser.parse(script.encode())
        for fault in faults(tree.root_node) if tree.root_node.has_error else []:
            line, column = fault.start_point
            print(f"{place}: line {line + 1}, column {column + 1}: {script.splitlines()[line].strip()}", file=sys.stderr)
            wrong += 1
    if not scripts or wrong:
        raise SystemExit(f"{wrong} mistakes in {len(scripts)} scripts")
    print(f"PowerShell: {len(scripts)} scripts parsed")


main()
