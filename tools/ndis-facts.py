#!/usr/bin/env python3
"""Copies the facts about NDIS, Winsock Kernel and the IP helper that crates/abi/ndis declares.

  tools/ndis-facts.py FACTS KIT tests-host/facts/ndis-facts.json: what crates/abi/ndis names, taken from FACTS, a full table of
                                what a compiler makes of the kit's headers. Constants that FACTS lacks are those that clang finds
                                in KIT, the folder Include/VERSION of an installed kit. What is Winsock Kernel's is compared
                                with what clang makes of KIT for x86-64 and for ARM64: FACTS is of the former only

The test `ndis_layouts` compares the crate with that copy.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "tests-host" / "facts" / "ndis-facts.json"
SECTIONS = ("types", "enums", "functions", "function_types", "constants")
ARCHITECTURES = {"x86_64": "_AMD64_", "aarch64": "_ARM64_"}
HEADERS = "#define _WINSOCK_DEPRECATED_NO_WARNINGS\n#include <ntddk.h>\n#include <wsk.h>\n"
# Of the compiler's own headers, which are not part of the kit, what the kit's need.
RUNTIME = """
#include <sal.h>
#define _CRT_BEGIN_C_HEADER
#define _CRT_END_C_HEADER
#define _CRTIMP
#define __CRTDECL
#define _CRT_DEPRECATE_TEXT(text)
#define _CRT_INSECURE_DEPRECATE(name)
#define _CRT_INSECURE_DEPRECATE_MEMORY(name)
#define _CRT_UNUSED(name) (void)name
typedef int EXCEPTION_DISPOSITION;
typedef unsigned short wchar_t;
typedef unsigned long long size_t, uintptr_t;
typedef long long intptr_t, ptrdiff_t;
typedef char *va_list;
enum { _ARM64_BARRIER_SY = 15, _ARM64_BARRIER_ISH = 11, _ARM64_BARRIER_ISHST = 10 };
"""


def values(kit, arch, expressions):
    """The numbers that expressions of C have for an architecture, or nothing if one does not compile."""
    lines = [f"unsigned long long fact_{place} = (unsigned long long)({text});" for place, text in enumerate(expressions)]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "facts.c"
        source.write_text(HEADERS + "\n".join(lines) + "\n")
        (pathlib.Path(folder) / "vcruntime.h").write_text(RUNTIME)
        command = ["clang", "-S", "-emit-llvm", "-o", "-", f"--target={arch}-pc-windows-msvc", "-w", "-fms-extensions"]
        command += ["-fms-compatibility", "-fms-compatibility-version=19.20", "-nostdinc", "-ferror-limit=0"]
        command += [f"-I{kit}/{part}" for part in ("km", "shared", "ucrt")] + [f"-I{folder}", str(source)]
        command += [f"-D{ARCHITECTURES[arch]}", "-DNTDDI_VERSION=0x0A000000", "-D_WIN32_WINNT=0x0A00"]
        while True:
            done = subprocess.run(command, capture_output=True, text=True)
            missing = re.search(r"fatal error: '([\w./]+)' file not found", done.stderr)
            if not missing:
                break
            (pathlib.Path(folder) / missing[1]).write_text("")
    if done.returncode:
        return None
    found = dict(re.findall(r"^@fact_(\d+) = .*?i64 (-?\d+)", done.stdout, re.M))
    return [int(found[str(place)]) for place in range(len(expressions))]


def check_sockets(kit, copied):
    """Ends unless Winsock Kernel's structures and constants are for each architecture what the copy says."""
    expected = {}
    for name, entry in copied["types"].items():
        if entry["header"] == "wsk.h":
            expected |= {f"sizeof({name})": entry["size"], f"_Alignof({name})": entry["align"]}
            fields = [field for field in entry["fields"] if field["name"]]
            expected |= {f"__builtin_offsetof({name}, {field['name']})": field["offset"] for field in fields}
    expected |= {name: entry["value"] for name, entry in copied["constants"].items() if entry["header"] == "wsk.h"}
    for arch in ARCHITECTURES:
        for (text, wanted), found in zip(expected.items(), values(kit, arch, expected)):
            if found % 2**32 != wanted % 2**32:
                raise SystemExit(f"{text} is {wanted} in the facts, and {found} for {arch}")
    print(f"{len(expected)} numbers of Winsock Kernel are the same for {', '.join(ARCHITECTURES)}")


def main(arguments):
    if len(arguments) != 2 or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    facts, kit = json.loads(pathlib.Path(arguments[0]).read_text()), pathlib.Path(arguments[1]).resolve()
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
    for name in re.findall(r"^pub const ([A-Z][A-Z0-9_]+): u\w+ = ", source, re.M):
        if name not in facts["constants"] and (found := values(kit, "x86_64", [name])):
            copied["constants"][name] = {"value": found[0], "hex": hex(found[0]), "header": "of the kit"}
    copied["constants"] = dict(sorted(copied["constants"].items()))
    check_sockets(kit, copied)
    # One item a line: a change of the facts shows what changed.
    lines = ["{"]
    for section, items in copied.items():
        body = ",\n".join(f"    {json.dumps(name)}: {json.dumps(item)}" for name, item in items.items())
        lines.append(f'  "{section}": {{\n{body}\n  }},')
    lines[-1] = lines[-1].rstrip(",")
    COPY.write_text("\n".join([*lines, "}"]) + "\n")


main(sys.argv[1:])
