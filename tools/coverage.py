#!/usr/bin/env python3
"""Compares the lines that no test has run with a list that gives the reason for each.

    tools/coverage.py LINES.lcov            prints the lines that were not run
    tools/coverage.py LINES.lcov LIST.toml  prints those that the list has no reason for, and the names in it that are stale

Ends with 1 if the second finds any. A line is named by its file, the last function that begins before it, and its text, so that the
list stays true when lines move: "crates/provider/engine/src/slab.rs: remove: return None;". A name stands for one line: two equal ones of a
function need it twice. An entry with `sometimes = true` is of lines that only some runs reach: it is stale only if a line is gone.
"""

import re
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

FUNCTION = re.compile(r"\bfn\s+(\w+)")
ROOT = Path.cwd()


def read_lcov(path):
    """The executions of each line, by file."""
    counts, file = defaultdict(dict), None
    for line in path.read_text().splitlines():
        if line.startswith("SF:"):
            file = str(Path(line[3:]).relative_to(ROOT))
        elif line.startswith("DA:"):
            number, count = map(int, line[3:].split(",")[:2])
            counts[file][number] = counts[file].get(number, 0) + count
    return counts


def named(counts):
    """The place, the name and the executions of each line."""
    for file, lines in sorted(counts.items()):
        function = "-"
        for number, text in enumerate(Path(file).read_text().splitlines(), 1):
            if found := FUNCTION.search(text.split("//")[0]):
                function = found[1]
            if number in lines:
                yield f"{file}:{number}", f"{file}: {function}: {text.strip()}", lines[number]


def read_list(path):
    """The names in the list: of lines that no run reaches, and of those that some runs reach."""
    always, sometimes = Counter(), Counter()
    for entry in tomllib.loads(path.read_text())["uncovered"]:
        if unknown := entry.keys() - {"reason", "sometimes", "lines"}:
            sys.exit(f"{path}: an entry has {', '.join(sorted(unknown))}")
        if not entry.get("reason", "").strip():
            sys.exit(f"{path}: {entry['lines']} have no reason")
        (sometimes if entry.get("sometimes") else always).update(entry["lines"])
    return always, sometimes


def main(lcov, known=None):
    lines = list(named(read_lcov(Path(lcov))))
    always, sometimes = read_list(Path(known)) if known else (Counter(), Counter())
    left, wrong = 0, 0
    may_run = sometimes - Counter(name for _, name, _ in lines)
    for place, name, count in lines:
        if count > 0:
            continue
        left += 1
        names = next((names for names in (always, sometimes) if names[name] > 0), None)
        if names:
            names[name] -= 1
        else:
            wrong += 1
            print(f"{place}: {name.split(': ', 1)[1]}")
    for name in (always + may_run).elements():
        wrong += 1
        print(f"{known}: stale: {name}")
    run, total = len(lines) - left, len(lines)
    print(f"total: {run} of {total} lines run ({100 * run / total:.1f} %), {left} were not")
    if known and wrong:
        sys.exit(f"tools/coverage.py: {wrong} lines disagree with {known}")


if __name__ == "__main__":
    main(*sys.argv[1:])
