"""What tools/walk.sh runs inside gdb: steps through one write and lists the functions of this repository that it enters.

Takes from the environment: WALK_MOST_FUNCTIONS and WALK_MOST_FILES, either may be empty; WALK_LIST, not empty if all are listed.
"""

import os
import re
import sys
from pathlib import Path

import gdb

# The host stands in for the kernel: what it does to lock, to run a deferred call and to copy is listed, not counted.
COUNTED = ("engine", "provider", "fallible", "ndkpi")
BEGIN, END = "walk::softndk_walk", "bench::ndk::notified"
MOST_STEPS = 1_000_000


def without_generics(name):
    """The name of a function, the same for each of its instances."""
    kept, depth, before = "", 0, ""
    for char in name:
        if char == "<":
            depth += 1
        elif char == ">" and before != "-":
            depth -= 1
        elif depth == 0:
            kept += char
        before = char
    return kept


class Function:
    """A function of the repository, found by a line in its body."""

    sources = {}

    def __init__(self, name, file, line):
        self.name, self.file = name, file
        self.crate = file.split("/")[2]
        source = self.sources.setdefault(file, Path(file).read_text().split("\n"))
        head = re.compile(r"\bfn " + re.escape(name.split("::")[-1]) + r"\b")
        above = (number for number in range(min(line, len(source)), 0, -1) if head.search(source[number - 1]))
        self.line = next(above, None)
        self.is_long = self.line is not None and body_lines(source, self.line - 1) > 1

    def is_counted(self):
        """Returns true if the function has more than one line. A reader need not follow one that is derived or an expression."""
        return self.crate in COUNTED and self.is_long


def body_lines(source, first):
    """Lines of code in the body of the function whose head begins at the index `first`. The sources are formatted."""
    indent = re.match(" *", source[first]).group()
    opening = next(index for index in range(first, len(source)) if re.search(r"[{}]\s*$", source[index]))
    if source[opening].rstrip().endswith("}"):
        return 1
    closing = next(index for index in range(opening + 1, len(source)) if source[index].startswith(indent + "}"))
    lines = (line.strip() for line in source[opening + 1 : closing])
    return sum(1 for line in lines if line and not line.startswith("//"))


def walk():
    """The functions of the repository in the order of their first call, without closures, which are read with their function."""
    gdb.execute(f"break {BEGIN}", to_string=True)
    gdb.execute("run", to_string=True)
    gdb.execute("set scheduler-locking on")
    seen, functions = set(), []
    for _ in range(MOST_STEPS):
        gdb.execute("stepi", to_string=True)
        frame = gdb.newest_frame()
        name = without_generics(frame.name() or "")
        if name in seen:
            continue
        seen.add(name)
        if name == END:
            return functions
        at = frame.find_sal()
        file = at.symtab.filename if at.symtab else ""
        if file.startswith("crates/") and "{closure" not in name:
            functions.append(Function(name, file, at.line))
    raise RuntimeError(f"no {END} after {MOST_STEPS} steps")


def main():
    """Prints the walk; returns false if it is longer than it may be."""
    gdb.execute("set pagination off")
    gdb.execute("set confirm off")
    functions = walk()
    gdb.execute("kill", to_string=True)
    counted = [function for function in functions if function.is_counted()]
    files = {function.file for function in counted}
    if not counted:
        raise RuntimeError("nothing was counted")
    for function in functions if os.environ.get("WALK_LIST") else counted:
        mark = " " if function.is_counted() else "-"
        print(f"{mark} {function.file}:{function.line or 'derived'} {function.name}")
    ours = sum(1 for function in functions if function.crate in COUNTED)
    host = sum(1 for function in functions if function.crate == "host")
    print(
        f"{len(counted)} functions in {len(files)} files"
        f" (and {ours - len(counted)} that are derived or have one line; the host's part: {host})"
    )
    limits = [("functions", len(counted), "WALK_MOST_FUNCTIONS"), ("files", len(files), "WALK_MOST_FILES")]
    is_short = True
    for what, count, variable in limits:
        most = os.environ.get(variable)
        if most and count > int(most):
            print(f"too many {what}: {count}, at most {most}")
            is_short = False
    return is_short


# gdb ends with success whatever becomes of a script.
code = 1
try:
    code = 0 if main() else 1
except Exception as error:  # noqa: BLE001
    print(f"walk.py: {error!r}")
sys.stdout.flush()
gdb.execute(f"quit {code}")
