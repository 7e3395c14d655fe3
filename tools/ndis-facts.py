#!/usr/bin/env python3
"""Copies the facts about NDIS, Winsock Kernel and the IP helper that crates/abi/ndis declares.

  tools/ndis-facts.py FACTS     tests-host/facts/ndis-facts.json: what crates/abi/ndis names, taken from FACTS, a full table of
                                what a compiler makes of the kit's headers

The test `ndis_layouts` compares the crate with that copy.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "tests-host" / "facts" / "ndis-facts.json"
SECTIONS = ("types", "enums", "functions", "function_types", "constants")


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    facts = json.loads(pathlib.Path(arguments[0]).read_text())
    source = "\n".join(path.read_text() for path in sorted((ROOT / "crates/abi/ndis/src").glob("*.rs")))
    declared = set(
        re.findall(r"^\s*(?:pub )?(?:struct|union|type|const|fn) (\w+)", source, re.M)
        + re.findall(r"^    ([A-Z]\w+) \{$", source, re.M)
    )
    # The enumeration whose members are indices of a list's information.
    declared.add("NDIS_NET_BUFFER_LIST_INFO")
    copied = {"meta": facts["meta"]}
    for section in SECTIONS:
        copied[section] = {name: facts[section][name] for name in sorted(declared & facts[section].keys())}
    # One item a line: a change of the facts shows what changed.
    lines = ["{"]
    for section, items in copied.items():
        body = ",\n".join(f"    {json.dumps(name)}: {json.dumps(item)}" for name, item in items.items())
        lines.append(f'  "{section}": {{\n{body}\n  }},')
    lines[-1] = lines[-1].rstrip(",")
    COPY.write_text("\n".join([*lines, "}"]) + "\n")


main(sys.argv[1:])
