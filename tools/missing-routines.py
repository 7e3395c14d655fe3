#!/usr/bin/env python3
"""What drivers of others call, and images cannot import here.

  tools/missing-routines.py SOURCES DDI [FOLDER...]

SOURCES and DDI are git directories: drivers' sources, such as Microsoft's samples, and the public DDI reference, which says what is a
routine. FOLDER: only what is below, such as network/wsk. Each line: how many folders of sources name a routine, and its header. A name
that headers define as a macro or inline function is listed too: an image does not import it.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = set("wdm ntddk ntifs ndis nbl nblapi ndisndk netioapi wsk wmistr evntrace".split())


def git(directory, *arguments):
    run = subprocess.run(["git", "-C", directory, *arguments], check=True, capture_output=True)
    return run.stdout.decode("utf-8", "replace")


def main(sources, ddi, folders):
    pages = git(ddi, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    found = (re.search(r"/nf-(\w+?)-(\w+)\.md$", page) for page in pages)
    headers = {page[2]: page[1] for page in found if page and page[1] in HEADERS}
    table = (ROOT / "crates/simulator/image-loader/src/routines.rs").read_text()
    have = set(re.findall(r"^ {16}(\w+)$", table, re.MULTILINE)) | set(re.findall(r'^ {4}\(?"(\w+)"', table, re.MULTILINE))
    calls = collections.defaultdict(set)
    for path in git(sources, "ls-tree", "-r", "--name-only", "HEAD", *folders).splitlines():
        if path.endswith((".c", ".cpp", ".h", ".hpp")):
            for name in re.findall(r"\b([A-Z]\w{4,})\s*\(", git(sources, "show", f"HEAD:{path}")):
                if name.lower() in headers and name not in have:
                    calls[name].add(path.rsplit("/", 1)[0])
    for name, places in sorted(calls.items(), key=lambda call: (-len(call[1]), call[0])):
        print(f"{len(places):4} {name} ({headers[name.lower()]}.h)")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
