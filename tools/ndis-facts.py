#!/usr/bin/env python3
"""Copies the facts about NDIS, Winsock Kernel and the IP helper that crates/abi/ndis declares.

  tools/ndis-facts.py FACTS KIT tests-host/facts/ndis-facts.json: what crates/abi/ndis names, taken from FACTS, a full table of
                                what a compiler makes of the kit's headers. Constants that FACTS lacks are those that clang finds
                                in KIT, the folder Include/VERSION of an installed kit. What is Winsock Kernel's is compared
                                with what clang makes of KIT for x86-64 and for ARM64: FACTS is of the former only

  tools/ndis-facts.py structures KIT
                                tests-host/facts/ndis-structures.json: the structures that the simulated kernel lays out itself,
                                by the names in front of them, as clang lays them out for x86-64 with the headers of KIT

The test `ndis_layouts` compares the crate, and the simulated kernel, with these copies.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "tests-host" / "facts" / "ndis-facts.json"
STRUCTURES = COPY.parent / "ndis-structures.json"
SIMULATOR = ROOT / "crates" / "simulator" / "simulated-kernel" / "src"
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


def values(kit, arch, expressions, headers=HEADERS, options=()):
    """The numbers that expressions of C have for an architecture, or nothing if one does not compile."""
    lines = [f"unsigned long long fact_{place} = (unsigned long long)({text});" for place, text in enumerate(expressions)]
    compiled = compile_for(kit, arch, headers + "\n".join(lines) + "\n", *options)
    if compiled.returncode:
        return None
    found = dict(re.findall(r"^@fact_(\d+) = .*?i64 (-?\d+)", compiled.stdout, re.M))
    return [int(found[str(place)]) for place in range(len(expressions))]


def compile_for(kit, arch, text, *options):
    """What clang makes of a source for an architecture."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "facts.c"
        source.write_text(text)
        header = pathlib.Path(kit) / "km" / "ndis.h"
        paste = "#define PASTE_(number) 0x ## number\n#define PASTE(number) (PASTE_(number))\n"
        (pathlib.Path(folder) / "ndis.h").write_text(paste + PASTED.sub(r"PASTE(\1)", header.read_text(errors="replace")))
        (pathlib.Path(folder) / "vcruntime.h").write_text(RUNTIME)
        command = ["clang", "-S", "-emit-llvm", "-o", "-", f"--target={arch}-pc-windows-msvc", "-w", "-fms-extensions"]
        command += ["-fms-compatibility", "-fms-compatibility-version=19.20", "-nostdinc", "-ferror-limit=0"]
        command += [f"-I{folder}"] + [f"-I{kit}/{part}" for part in ("km", "shared", "ucrt")] + [str(source)]
        command += [f"-D{ARCHITECTURES[arch]}", "-DNTDDI_VERSION=0x0A000000", "-D_WIN32_WINNT=0x0A00", *options]
        while True:
            done = subprocess.run(command, capture_output=True, text=True)
            missing = re.search(r"fatal error: '([\w./]+)' file not found", done.stderr)
            if not missing:
                return done
            # The kit's headers do not agree about small and large letters; what is in none of its folders is the compiler's own.
            found = [path for part in ("km", "shared") for path in (pathlib.Path(kit) / part).iterdir()]
            same = [path for path in found if path.name.lower() == missing[1].lower()]
            (pathlib.Path(folder) / missing[1]).write_bytes(same[0].read_bytes() if same else b"")


# NDIS 6.80. Its header makes a number of a version's name with `##`, which the kit's compiler does, and clang does not.
OF_NDIS = """#define _WINSOCK_DEPRECATED_NO_WARNINGS
#define NDIS_MINIPORT_DRIVER 1
#define NDIS680_MINIPORT 1
#include <ntddk.h>
#include <ndis.h>
"""
PASTED = re.compile(r"\(0x ## (\w+)\)")
OPTIONS = ["-UNTDDI_VERSION", "-DNTDDI_VERSION=0x0A000004"]


def fields_of(layout):
    """The names of a structure's own fields, in the layout that clang prints of it."""
    return re.findall(r"^ *\d+ \|   \S.*?(\w+)$", layout, re.M)


def structures(kit):
    """Writes the layouts of the structures that the simulated kernel has of its own."""
    sources = "\n".join(path.read_text() for path in sorted(SIMULATOR.glob("**/*.rs")))
    names = sorted(set(re.findall(r"^/// `((?:NDIS|MIB)_\w+)`.*\n(?:///.*\n|#\[derive.*\n)*#\[repr\(C\)\]", sources, re.M)))
    headers = OF_NDIS + "#include <netioapi.h>\n"
    uses = "".join(f"unsigned long long size_{name} = sizeof({name});\n" for name in names)
    printed = compile_for(kit, "x86_64", headers + uses, *OPTIONS, "-Xclang", "-fdump-record-layouts-complete").stdout
    copied = {}
    for name in names:
        layout = re.search(rf"^ *0 \| struct _?{name}\n(.*?)^ *\| \[sizeof", printed, re.M | re.S)
        fields = fields_of(layout[1])
        expressions = [f"sizeof({name})"]
        for field in fields:
            expressions += [f"__builtin_offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
        size, *numbers = values(kit, "x86_64", expressions, headers, OPTIONS)
        pairs = zip(fields, numbers[::2], numbers[1::2])
        copied[name] = {"size": size, "fields": [{"name": field, "offset": at, "size": of} for field, at, of in pairs]}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in copied.items())
    STRUCTURES.write_text("{\n" + lines + "\n}\n")
    print(f"{len(copied)} structures")


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
    if arguments[0] == "structures":
        return structures(pathlib.Path(arguments[1]).resolve())
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
