#!/usr/bin/env python3
"""Copies the facts that the bindings of the Linux builds (xbuild/wdk-bindings) and their tests are made of.

  tools/wdk-facts.py copy FACTS   tests-host/facts/wdk-facts.json: what wanted.txt names and what those items need, taken
                                  from FACTS, a full table of the bindings that wdk-sys generates from an installed WDK
  tools/wdk-facts.py document GIT tests-host/facts/ddi.json: since which Windows the routines exist and at which IRQL they may
                                  be called, taken from GIT, the git directory of the public DDI reference
  tools/wdk-facts.py declared KIT tests-host/facts/declared.json: what the kit's headers make of each routine on each
                                  architecture (a function, an inline one, a macro), as clang sees it; KIT is the folder
                                  Include/VERSION of an installed kit. After a new routine: copy, declared, copy again, for
                                  which routines are of one architecture only

All are repeatable.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAND_IN = ROOT / "xbuild" / "wdk-bindings"
FACTS = ROOT / "tests-host" / "facts" / "wdk-facts.json"
DECLARED = FACTS.parent / "declared.json"
NETWORK = FACTS.parent / "ndis-facts.json"

# KMDF 1.15 has this many functions. Its headers are public: up to 1.19 no structure of the framework changed, every
# function kept its index, and two functions were appended.
KMDF_1_15_FUNCTIONS = 444

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
PRIMITIVES = set(
    "core ffi c_void c_char c_schar c_uchar c_short c_ushort c_int c_uint c_long c_ulong c_longlong c_ulonglong "
    "u8 u16 u32 u64 i8 i16 i32 i64 usize isize bool f32 f64 mut const unsafe extern C fn Option Type "
    "__BindgenBitfieldUnit __IncompleteArrayField CStr".split()
)


def wanted():
    sections, section = {}, None
    for line in (STAND_IN / "wanted.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            section = sections.setdefault(line[1:-1], [])
        elif line:
            section.append(line)
    return sections


class Closure:
    """The items wanted and everything that their spelling mentions.

    A type is needed with its fields when it stands somewhere by value, and as an opaque name when it is only pointed to.
    """

    def __init__(self, facts):
        self.facts = facts
        self.structs = {entry["rust"]: (name, entry) for name, entry in facts["types"].items()}
        self.aliases, self.enums, self.full, self.opaque = set(), set(), set(), set()
        self.unknown_enums = set()

    def spelling(self, text):
        text = re.sub(r"\b\w+\s*:(?!:)", "", text)  # parameter names
        for match in IDENTIFIER.finditer(text):
            word = match.group()
            if word in PRIMITIVES:
                continue
            pointed_to = re.search(r"\*\s*(mut|const)\s+$", text[: match.start()])
            self.name(word, by_value=not pointed_to, is_module=text[match.end() :].startswith("::"))

    def name(self, word, by_value, is_module=False):
        facts = self.facts
        if word in facts["enums"]:
            self.enums.add(word)
        elif is_module:
            self.unknown_enums.add(word)
        elif word in self.structs:
            if by_value and word not in self.full:
                self.full.add(word)
                for field in self.structs[word][1]["fields"]:
                    self.spelling(field["type"])
            elif not by_value:
                self.opaque.add(word)
        elif word in facts["aliases"]:
            key = (word, by_value)
            if key in self.aliases:
                return
            self.aliases.add(key)
            target = facts["aliases"][word]
            if by_value:
                self.spelling(target)
            elif IDENTIFIER.fullmatch(target) and target not in PRIMITIVES:
                self.name(target, by_value=False)
            else:
                self.spelling(target)
        elif word in facts["other_types"]:
            self.opaque.add(word)
        else:
            raise SystemExit(f"{word}: not in the facts")


def of_one_architecture(name, entry, declared):
    """Marks a routine that is a macro on one architecture; the routine that it stands for there, if there is one."""
    others = {}
    for arch, kind in declared.items():
        if kind.startswith("macro "):
            (entry["only"],) = set(declared) - {arch}
            stands_for = kind.removeprefix("macro ")
            signature = entry["signature"].replace(f"fn {name}(", f"fn {stands_for}(")
            others[stands_for] = {"module": "ntddk", "signature": signature, "only": arch}
    return others


def copy(source):
    facts = json.loads(pathlib.Path(source).read_text())
    want = wanted()
    closure = Closure(facts)
    declared = json.loads(DECLARED.read_text())
    functions = {}
    for section, module in (("ntddk", "ntddk"), ("wdf", "wdf-table")):
        for name in want[section]:
            entry = facts["functions"][name]
            assert entry["module"] == module, name
            functions[name] = {
                key: entry[key]
                for key in ("module", "signature", "dll", "pfn", "index_1_19", "not_in_kit")
                if key in entry
            }
            closure.spelling(entry["signature"].replace(f"fn {name}(", "fn("))
            if module == "ntddk":
                functions.update(of_one_architecture(name, functions[name], declared.get(name, {})))
            if module == "wdf-table":
                assert entry["index_1_19"] is not None and entry["index_1_19"] < KMDF_1_15_FUNCTIONS, name
    for name in want["types"]:
        closure.name(name, by_value=True)
    for name in want["statics"]:
        closure.spelling(facts["statics"][name]["type"])
    for name in ("POOL_FLAGS", "NTSTATUS", "BOOLEAN", "PWDF_OBJECT_ATTRIBUTES", "PVOID", "CHAR"):
        closure.name(name, by_value=True)
    enums = {name: facts["enums"][name] for name in sorted(closure.enums | set(want["enums"]))}
    for name in sorted(closure.unknown_enums):
        # The table leaves out a few large enumerations; all of them have this type.
        enums[name] = {"type": "core::ffi::c_int", "values": {}, "values_left_out": True}

    named = {name for name, _ in closure.aliases}
    types, opaque = {}, {}
    for rust in sorted(closure.full):
        name, entry = closure.structs[rust]
        types[name] = {
            key: entry[key] for key in ("rust", "kind", "size", "align", "repr", "default", "fields", "not_in_kit") if key in entry
        }
    for rust in sorted(closure.opaque - closure.full):
        other = facts["other_types"].get(rust, {})
        opaque[rust] = {"defined": rust in closure.structs or not other.get("opaque", False)}
        if not rust.endswith("__"):
            # Others may have it by value. The handles of the framework are only pointed to.
            opaque[rust].update((key, other[key]) for key in ("size", "align") if key in other)
    result = {
        "meta": {
            **facts["meta"],
            "kmdf_1_15_function_count": KMDF_1_15_FUNCTIONS,
            "kmdf_1_15": "public headers: same structures and indices as 1.19 for everything listed here",
            "selection": "what xbuild/wdk-bindings/wanted.txt names and what that needs",
        },
        "types": types,
        "opaque": opaque,
        "aliases": {name: facts["aliases"][name] for name in sorted(named)},
        "functions": dict(sorted(functions.items())),
        "statics": {name: facts["statics"][name] for name in sorted(want["statics"])},
        "enums": enums,
        "constants": {name: facts["constants"][name] for name in sorted(want["constants"])},
        "status": facts["status"],
        "pool_flags": facts["pool_flags"],
    }
    FACTS.parent.mkdir(parents=True, exist_ok=True)
    with FACTS.open("w") as out:
        out.write("{\n")
        for number, (section, entries) in enumerate(result.items()):
            out.write(f' "{section}": {{\n')
            lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()]
            out.write(",\n".join(lines) + "\n }" + ("," if number + 1 < len(result) else "") + "\n")
        out.write("}\n")


# The reference names some imports by the macro that programs use.
DOCUMENTED_AS = {
    "IofCallDriver": "IoCallDriver",
    "IofCompleteRequest": "IoCompleteRequest",
    "KfLowerIrql": "KeLowerIrql",
    "KfRaiseIrql": "KeRaiseIrql",
    "ObfDereferenceObject": "ObDereferenceObject",
    "ObfReferenceObject": "ObReferenceObject",
    "WdfObjectDereferenceActual": "WdfObjectDereference",
    "WdfObjectReferenceActual": "WdfObjectReference",
}
WINDOWS = ["2000", "XP", "Server 2003", "Vista", "7", "8", "8.1", "10", "10, version 2004"]


def introduced(text):
    """The first Windows with the routine; nothing if the page does not say."""
    text = re.sub(r"\s+|\xa0", " ", text)
    found = [w for w in WINDOWS if re.search(rf"(Windows|Microsoft) ({re.escape(w)})\b(?!\.\d)", text)]
    return "Windows " + found[-1 if "version" in text else 0] if found else ""


def document(git):
    def run(*arguments):
        return subprocess.run(["git", "-C", git, *arguments], check=True, capture_output=True, text=True).stdout

    pages = {}
    for path in run("ls-tree", "-r", "--name-only", "HEAD").splitlines():
        match = re.search(r"/nf-(\w+?)-(\w+)\.md$", path)
        if match:
            pages.setdefault(match[2].lower(), []).append((match[1], path))
    order = ["wdm", "ntddk", "ntifs"]
    out = {}
    for name, entry in json.loads(FACTS.read_text())["functions"].items():
        found = pages.get(DOCUMENTED_AS.get(name, name).lower(), [])
        found.sort(key=lambda page: order.index(page[0]) if page[0] in order else len(order))
        text = run("show", f"HEAD:{found[0][1]}") if found else ""

        def field(key):
            match = re.search(rf"^{re.escape(key)}:[ \t]*\"?(.*?)\"?[ \t]*$", text, re.MULTILINE)
            return match[1] if match else ""

        irql = re.sub(r"\s*\(.*|^IRQL\s*|\.$", "", field("req.irql")).replace("<=D", "<= D")
        out[name] = {"irql": "" if irql.lower().startswith(("see", "for more")) else irql}
        if entry["module"] == "ntddk":
            out[name]["introduced"] = introduced(field("req.target-min-winverclnt"))
        else:
            out[name]["kmdf"] = field("req.kmdf-ver")
    with (FACTS.parent / "ddi.json").open("w") as file:
        lines = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(out.items())]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


ARCHITECTURES = {"x86_64": "_AMD64_", "aarch64": "_ARM64_"}
SOURCE = """
#define NDIS_MINIPORT_DRIVER 1
#define NDIS680_MINIPORT 1
#define NDIS_WDM 1
#include <ntifs.h>
#include <ndis.h>
#include <ndisNDK.h>
#include <netioapi.h>
#include <wsk.h>
"""


def preprocess(kit, arch, folder):
    """The headers as a compiler for the architecture sees them, with the macros. The compiler's own headers are not part of the kit:
    nothing is needed of them, so those that are missing are empty."""
    resources = subprocess.run(["clang", "-print-resource-dir"], check=True, capture_output=True, text=True).stdout.strip()
    (folder / "all.c").write_text(SOURCE)
    command = ["clang", "-E", "-dD", f"--target={arch}-pc-windows-msvc", "-fms-extensions", "-fms-compatibility"]
    command += ["-fms-compatibility-version=19.20", "-nostdinc", "-isystem", f"{resources}/include"]
    command += [f"-I{kit}/{part}" for part in ("km", "shared", "ucrt")] + [f"-I{folder}"]
    command += [f"-D{ARCHITECTURES[arch]}", "-DNTDDI_VERSION=0x0A000000", "-D_WIN32_WINNT=0x0A00", str(folder / "all.c")]
    while True:
        done = subprocess.run(command, capture_output=True, text=True)
        missing = re.search(r"fatal error: '([\w./]+)' file not found", done.stderr)
        if not missing:
            break
        (folder / missing[1]).write_text("")
    return done.stdout


def kinds(text, names):
    """What each name is in preprocessed headers: `function`, `inline`, `macro NAME` or nothing. A macro around a function of its own
    name leaves it a function."""
    macros, found = {}, {}
    for match in re.finditer(r"^#define (\w+)(?:\([^)]*\))?[ \t]+\(?(\w+)\b", text, re.MULTILINE):
        if match[1] in names and match[1] != match[2]:
            macros[match[1]] = f"macro {match[2]}"
    for match in re.finditer(r"^#undef (\w+)", text, re.MULTILINE):
        macros.pop(match[1], None)
    # Declarations are outside of braces; what follows the parameters tells them from definitions.
    depth, place, outside = 0, 0, []
    code = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    for match in re.finditer(r"[{}]", code):
        if depth == 0:
            outside.append(code[place : match.start()])
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            place = match.end()
            outside.append("\0")
    outside.append(code[place:])
    for match in re.finditer(r"\b(\w+)\s*(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))\s*(?:__attribute__\S*\s*)?([;\0])", "".join(outside)):
        if match[1] in names:
            found.setdefault(match[1], "inline" if match[3] == "\0" else "function")
    return macros | found


def declared(kit):
    routines = json.loads(FACTS.read_text())["functions"]
    names = {name for name, entry in routines.items() if entry["module"] == "ntddk" and not entry.get("not_in_kit")}
    names |= set(json.loads(NETWORK.read_text())["functions"])
    seen = {}
    for arch in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            text = preprocess(pathlib.Path(kit).resolve(), arch, pathlib.Path(folder))
        names_here = names | {kind.split()[1] for kind in kinds(text, names).values() if kind.startswith("macro ")}
        seen[arch] = kinds(text, names_here)
    all_names = sorted(names | {name for found in seen.values() for name in found})
    with DECLARED.open("w") as file:
        lines = [
            f" {json.dumps(name)}: {json.dumps({arch: seen[arch].get(name, '') for arch in ARCHITECTURES})}"
            for name in all_names
        ]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["copy"] and len(sys.argv) == 3:
        copy(sys.argv[2])
    elif sys.argv[1:2] == ["declared"] and len(sys.argv) == 3:
        declared(sys.argv[2])
    elif sys.argv[1:2] == ["document"] and len(sys.argv) == 3:
        document(sys.argv[2])
    else:
        raise SystemExit(__doc__)
