#!/usr/bin/env python3
"""How deep the stack gets in a driver's image (x86-64).

    tools/stack-depth.py [--most BYTES] [--path] IMAGE...                 over direct calls, of any image
    tools/stack-depth.py [--most BYTES] [--path] --rules RULES IMAGE...   over all calls, of images with types (tools/stack-depth.sh)

Frames come from the unwind tables, calls from the disassembly (objdump). A path begins at a function that others can call (the
table of Control Flow Guard, and the entry point), follows calls and jumps, and ends where the image is left. A call of Windows
counts as its return address.

Without rules a path ends at an indirect call too. Of functions that can call each other in a circle each is at most once on a path; where
the ways through a circle are too many to be gone through, all its functions count.

With rules an indirect call goes to every function of its type, which the compiler's control flow integrity (kcfi) has noted before
the function and in front of the call. All destructors have one type. Which of them a call runs follows from the trait of the object:
the call's is in the debug information (addr2line), and a destructor's is that of the other functions in its table. RULES
(tools/stack-depth.toml) has what types do not say. Each rule must be needed, each circle broken, and each call without a function
of its type named as one that leaves the image: otherwise this says what is missing and ends with 1.

Ends with 1, too, if a path is deeper than BYTES (12288 by default).
"""

import argparse
import bisect
import collections
import itertools
import pathlib
import re
import struct
import subprocess
import sys
import tomllib

# Ways through a circle that are gone through: with which functions behind, at which one.
MOST_WAYS = 300_000

DEMANGLERS = ("llvm-cxxfilt", "llvm-cxxfilt-22", "llvm-cxxfilt-19", "rustfilt")


class Image:
    """The file: frames, and the targets of indirect calls."""

    def __init__(self, path):
        self.path = path
        self.data = data = open(path, "rb").read()
        pe = struct.unpack_from("<I", data, 0x3C)[0]
        if data[:2] != b"MZ" or data[pe : pe + 4] != b"PE\0\0" or struct.unpack_from("<H", data, pe + 4)[0] != 0x8664:
            sys.exit(f"{path}: no image for x86-64")
        sections, optional_size = struct.unpack_from("<H", data, pe + 6)[0], struct.unpack_from("<H", data, pe + 20)[0]
        optional = pe + 24
        self.entry = struct.unpack_from("<I", data, optional + 16)[0]
        self.base = struct.unpack_from("<Q", data, optional + 24)[0]
        self.directories = [struct.unpack_from("<II", data, optional + 112 + 8 * index) for index in range(16)]
        self.sections = [
            struct.unpack_from("<IIII", data, optional + optional_size + 40 * index + 8) for index in range(sections)
        ]

    def at(self, rva):
        """The place of an address in the file."""
        for size, begin, raw_size, raw in self.sections:
            if begin <= rva < begin + max(size, raw_size):
                return raw + rva - begin
        sys.exit(f"{self.path}: address {rva:#x} is in no section")

    def frames(self):
        """The functions: where each ends, and the bytes of its frame. A part of another function is that function."""
        rva, size = self.directories[3]
        functions, parts = {}, {}
        for entry in range(self.at(rva), self.at(rva) + size, 12):
            begin, end, unwind = struct.unpack_from("<III", self.data, entry)
            place = self.at(unwind)
            flags, count = self.data[place] >> 3, self.data[place + 2]
            codes = struct.unpack_from(f"<{count}H", self.data, place + 4)
            frame, index = 0, 0
            while index < count:
                operation, info = codes[index] >> 8 & 15, codes[index] >> 12
                step = 1
                if operation == 0:
                    frame += 8
                elif operation == 1 and info == 0:
                    frame, step = frame + 8 * codes[index + 1], 2
                elif operation == 1:
                    frame, step = frame + (codes[index + 1] | codes[index + 2] << 16), 3
                elif operation == 2:
                    frame += 8 * info + 8
                elif operation in (4, 8):
                    step = 2
                elif operation in (5, 9):
                    step = 3
                elif operation != 3:
                    sys.exit(f"{self.path}: unwind operation {operation} of {begin:#x} is not known")
                index += step
            functions[begin] = (end, frame)
            if flags & 4:
                parts[begin] = struct.unpack_from("<I", self.data, place + 4 + 2 * (count + count % 2))[0]
        return functions, parts

    def guard(self):
        """What indirect calls can go to."""
        place = self.at(self.directories[10][0])
        _, _, table, count = struct.unpack_from("<QQQQ", self.data, place + 0x70)
        stride = 4 + (struct.unpack_from("<I", self.data, place + 0x90)[0] >> 28)
        first = self.at(table - self.base)
        return {struct.unpack_from("<I", self.data, first + stride * index)[0] for index in range(count)}


INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:rex\S* |bnd |notrack )*(\S+)\s*(.*)$")
REGISTER = re.compile(r"r[a-z0-9]+$")
DIRECT = re.compile(r"(?:0x)?([0-9a-f]+)\b(?!.*\[)")
THROUGH = re.compile(r"\[rip.*# (?:0x)?([0-9a-f]+)")

# An indirect call or jump: where it is, in which function, and the number of its type, if it has one.
Site = collections.namedtuple("Site", "address function is_jump type")


class Code:
    """Functions, and who calls whom."""

    def __init__(self, path):
        self.image = Image(path)
        functions, parts = self.image.frames()
        self.targets = self.image.guard()
        instructions = self.disassemble()
        begins = sorted(functions)

        def framed(rva):
            index = bisect.bisect_right(begins, rva) - 1
            return begins[index] if index >= 0 and rva < functions[begins[index]][0] else None

        branches = []
        for address, operation, operand in instructions:
            direct = (operation == "call" or operation[0] == "j") and not REGISTER.match(operand) and DIRECT.match(operand)
            if direct:
                branches.append((address, operation, int(direct[1], 16) - self.image.base))
        # A leaf function has no entry in the unwind tables: it has no frame, and calls nobody, but may end with a jump to another
        # function. It begins where a call goes to, or a jump from elsewhere.
        leaves = {target for target in self.targets | {self.image.entry} if framed(target) is None}
        for address, operation, target in branches:
            apart = framed(address) is not None or bisect.bisect(begins, address) != bisect.bisect(begins, target)
            if framed(target) is None and (operation == "call" or apart):
                leaves.add(target)
        ordered = sorted(leaves | set(begins))

        def owner(rva):
            begin = framed(rva)
            if begin is None:
                index = bisect.bisect_right(ordered, rva) - 1
                return ordered[index] if index >= 0 and ordered[index] in leaves else None
            while begin in parts:
                begin = parts[begin]
            return begin

        self.owner = owner
        self.largest = max(frame for _, frame in functions.values())
        # A function has its frame, and the place where its caller's address lies.
        self.own = {begin: frame + 8 for begin, (_, frame) in functions.items() if begin not in parts}
        self.own |= {leaf: 8 for leaf in leaves}
        self.calls = {function: set() for function in self.own}
        self.jumps = {function: set() for function in self.own}
        for address, operation, target in branches:
            here, there = owner(address), owner(target)
            if here is None:
                continue
            if there is None:
                sys.exit(f"{path}: {address:#x} goes to {target:#x}, where no function is")
            if operation == "call":
                self.calls[here].add(there)
            elif there != here:
                self.jumps[here].add(there)
        self.sites = self.find_sites(instructions)
        self.names = {}

    def disassemble(self):
        command = ["objdump", "-d", "-M", "intel", "--no-show-raw-insn", self.image.path]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = (INSTRUCTION.match(line) for line in text.splitlines())
        return [(int(one[1], 16) - self.image.base, one[2], one[3]) for one in found if one]

    def find_sites(self, instructions):
        """The indirect calls and jumps, but for those of Windows and those of a table of branches, which stay in their function.

        Before one with a type stand `mov r10d, -TYPE` (or r11d), `add r10d, [target - 4]`, a branch that is taken, and `ud2`.
        """
        first, size = self.image.directories[12]
        imports = range(first, first + size)
        sites, sum_in, kind = [], None, None
        # Functions that keep the address of a routine of Windows in a register.
        self.keep_import = set()
        for address, operation, operand in instructions:
            if operation == "mov" and re.match(r"r1[01]d,0x", operand):
                sum_in = (operand[:4], int(operand[5:], 16))
                continue
            if operation == "add" and sum_in and operand.startswith(sum_in[0]) and operand.endswith("-0x4]"):
                kind = -sum_in[1] & 0xFFFFFFFF
                continue
            if kind is not None and operation in ("je", "ud2"):
                continue
            through = THROUGH.search(operand)
            imported = through and int(through[1], 16) - self.image.base in imports
            function = self.owner(address)
            # A jump to what a register has is one of a table of branches, unless it has a type.
            is_call = operation == "call" and (REGISTER.match(operand) or "[" in operand)
            is_jump = operation == "jmp" and (kind is not None or through)
            if operation == "mov" and imported:
                self.keep_import.add(function)
            if (is_call or is_jump) and not imported and function is not None:
                sites.append(Site(address, function, bool(is_jump), kind))
            sum_in = kind = None
        return sites

    def entries(self):
        """The functions that others can call."""
        return {self.owner(target) for target in self.targets | {self.image.entry}} - {None}

    def add(self, site, target):
        (self.jumps if site.is_jump else self.calls)[site.function].add(self.owner(target))

    def name(self, function):
        return min(self.names.get(function, ()), default=f"{self.image.base + function:#x}")


def demangle(names):
    """The names as Rust has them."""
    names = sorted(names)
    for command in DEMANGLERS:
        try:
            done = subprocess.run([command], input="\n".join(names) + "\n", capture_output=True, text=True, check=True)
        except FileNotFoundError:
            continue
        return dict(zip(names, done.stdout.splitlines(), strict=True))
    sys.exit("no program turns symbols of Rust into names; install Debian's llvm (llvm-cxxfilt)")


def trait_of_object(name):
    """`Trait` of `drop_in_place<...dyn$<Trait, Others>...>`, as debug information has it."""
    found = re.search(r"dyn\$<([^<>,]+)", name)
    return found[1] if found else None


DESTRUCTOR = "core::ptr::drop_in_place::<"


class Types:
    """What an image with types has beside its code: the type of each target, names, and the traits of destructors."""

    def __init__(self, code):
        self.code, image = code, code.image
        self.targets = collections.defaultdict(set)
        for target in code.targets:
            place = image.at(target)
            if image.data[place - 5] != 0xB8:
                sys.exit(f"{image.path}: {target:#x} has no type before it; build with tools/stack-depth.sh")
            self.targets[struct.unpack_from("<I", image.data, place - 4)[0]].add(target)
        code.names = self.read_names()
        kinds = {kind for kind, group in self.targets.items() if any(map(self.is_destructor, group))}
        if len(kinds) != 1:
            sys.exit(f"{image.path}: destructors have {len(kinds)} types, but one was expected")
        self.destructor = kinds.pop()
        self.traits = self.read_tables()

    def read_names(self):
        """The names of functions, from the linker's map beside the image."""
        path = pathlib.Path(self.code.image.path).with_suffix(".map")
        symbols = collections.defaultdict(set)
        for line in path.read_text(errors="replace").splitlines():
            found = re.match(r" [0-9a-f]{4}:[0-9a-f]{8} +(\S+) +([0-9a-f]{16}) ", line)
            if found:
                symbols[int(found[2], 16) - self.code.image.base].add(re.sub(r"\.llvm\.\d+$", "", found[1]))
        names = demangle({symbol for group in symbols.values() for symbol in group})
        return {address: {names[symbol] for symbol in group} for address, group in symbols.items()}

    def is_destructor(self, target):
        return any(name.startswith(DESTRUCTOR) for name in self.code.names.get(target, ()))

    def read_tables(self):
        """The traits of each destructor: those of the tables that begin with it. Then come size, alignment and functions.

        A table whose functions do not say what they are of gives `None`.
        """
        image, destructors = self.code.image, self.targets[self.destructor]
        functions, traits = self.code.targets - destructors, collections.defaultdict(set)
        for size, _, raw_size, raw in image.sections:
            data = image.data[raw : raw + min(size, raw_size) // 8 * 8]
            words = [word - image.base for (word,) in struct.iter_unpack("<Q", data)]
            for index in range(len(words) - 3):
                if words[index] in destructors and words[index + 3] in functions:
                    table = itertools.takewhile(functions.__contains__, words[index + 3 :])
                    traits[words[index]].add(self.trait_of(words[index], table))
        return traits

    def trait_of(self, destructor, table):
        """The trait of the last of these functions that the type has. Those of the traits that it is made of come before."""
        kinds = [name.removeprefix(DESTRUCTOR).removesuffix(">") for name in self.code.names[destructor]]
        trait = None
        for function in table:
            names = self.code.names.get(function, ())
            found = [re.match(re.escape(f"<{kind} as ") + "([^<>]+)", name) for kind in kinds for name in names]
            found = [one[1] for one in found if one]
            if not found:
                break
            trait = found[0]
        return trait

    def objects_destroyed(self, sites):
        """For each call of a destructor: the trait of the object, `None` if that is not known."""
        image, inner, address = self.code.image, {}, None
        command = ["addr2line", "-a", "-f", "-i", "-e", image.path] + [hex(image.base + site.address) for site in sites]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            if re.fullmatch("0x[0-9a-f]{16}", line):
                address = int(line, 16) - image.base
            else:
                # The innermost of the functions that were inlined there comes first.
                inner.setdefault(address, line)
        return {site: trait_of_object(inner[site.address]) for site in sites}

    def connect(self, rules):
        """Adds the indirect calls to those of the code."""
        for site in self.code.sites:
            # The compiler gives every indirect call a type, but not those of imported routines.
            if site.type is None and site.function not in self.code.keep_import:
                rules.complain(f"no type at the indirect call {site.address:#x} in {self.code.name(site.function)}")
        destroyed = self.objects_destroyed([site for site in self.code.sites if site.type == self.destructor])
        for site in self.code.sites:
            if site.type is None:
                continue
            if site in destroyed:
                trait = destroyed[site]
                # A table whose trait is not known could be of any.
                targets = {
                    target
                    for target in self.targets[site.type]
                    if trait is None or not self.traits[target] or self.traits[target] & {trait, None}
                }
            else:
                targets = self.targets.get(site.type, set())
            if not targets:
                rules.leaves(self.code.name(site.function))
            for target in targets:
                if site in destroyed or rules.allow(self.code, site.function, target):
                    self.code.add(site, target)


def all_match(pattern, names):
    """What several functions became does what each of them does: all names have to match."""
    return bool(names) and all(map(pattern.search, names))


class Rules:
    """What types do not say: tools/stack-depth.toml."""

    KINDS = ("layer", "leaves", "never", "most")

    def __init__(self, path):
        self.text = tomllib.loads(pathlib.Path(path).read_text())
        # A limit of several functions is one of each of them.
        self.text["most"] = [
            {**rule, "functions": functions} for rule in self.text["most"] for functions in rule["functions"]
        ]
        for rule in (rule for kind in self.KINDS for rule in self.text[kind]):
            rule["uses"] = 0
            for key in ("calls", "functions", "from", "to"):
                if key in rule:
                    rule[key] = re.compile(rule[key])
        self.callbacks = re.compile(self.text["callbacks"]["functions"])
        self.complaints = []

    def complain(self, text):
        if text not in self.complaints:
            self.complaints.append(text)

    def unused(self):
        for kind in self.KINDS:
            for rule in self.text[kind]:
                if not rule["uses"]:
                    pattern = rule.get("functions", rule.get("from")).pattern
                    yield f"[[{kind}]] of {pattern!r} is not needed"

    def leaves(self, name):
        """A call in the function of this name has no target in the image."""
        for rule in self.text["leaves"]:
            if rule["functions"].search(name):
                rule["uses"] += 1
                return
        self.complain(f"nothing in the image has the type of a call in {name}; if it leaves the image, add it to [[leaves]]")

    def layer(self, names, key):
        """The layer to which a function belongs, the innermost is 0."""
        numbers = [number for number, rule in enumerate(self.text["layer"]) if all_match(rule[key], names)]
        return max(numbers, default=None)

    def allow(self, code, function, target):
        """False if this function does not call that one indirectly, although it has the type."""
        names, called = code.names.get(function), code.names.get(target)
        here, there = self.layer(names, "calls"), self.layer(called, "functions")
        if here is not None and there is not None:
            inwards = not all_match(self.callbacks, called)
            if here <= there if inwards else here >= there:
                self.text["layer"][there]["uses"] += 1
                return False
        for rule in self.text["never"]:
            if "indirect" in rule and all_match(rule["from"], names) and all_match(rule["to"], called):
                rule["uses"] += 1
                return False
        return True

    def cut(self, code):
        """Takes out what destructors never do."""
        for rule in self.text["never"]:
            if "indirect" in rule:
                continue
            there = {function for function in code.own if all_match(rule["to"], code.names.get(function))}
            for function in code.own:
                if all_match(rule["from"], code.names.get(function)):
                    for edges in (code.calls, code.jumps):
                        rule["uses"] += len(edges[function] & there)
                        edges[function] -= there

    def limits(self, code):
        """The rules about functions that can be only so often on a path."""
        limits = {}
        for rule in self.text["most"]:
            for function in code.own:
                if function not in limits and all_match(rule["functions"], code.names.get(function)):
                    limits[function] = rule
        return limits


def circles(graph):
    """The strongly connected components, each after all that it calls (Tarjan)."""
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in sorted(graph):
        if root in number:
            continue
        work = [(root, iter(sorted(graph[root])))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            function, rest = work[-1]
            for callee in rest:
                if callee not in number:
                    number[callee] = low[callee] = len(number)
                    stack.append(callee)
                    on_stack.add(callee)
                    work.append((callee, iter(sorted(graph.get(callee, ())))))
                    break
                if callee in on_stack:
                    low[function] = min(low[function], number[callee])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[function])
                if low[function] == number[function]:
                    members = []
                    while not members or members[-1] != function:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    found.append(members)
    return found


def shortest_circle(members, graph):
    """The shortest circle of some functions that call each other."""
    best = None
    for begin in members:
        ways, seen = [[begin]], {begin}
        while ways and (best is None or len(ways[0]) < len(best)):
            way = ways.pop(0)
            if begin in graph[way[-1]]:
                best = way
                break
            for callee in sorted(graph[way[-1]] - seen):
                seen.add(callee)
                ways.append([*way, callee])
    return best


def is_circle(members, graph):
    return len(members) > 1 or members[0] in graph[members[0]]


class Depths:
    """The bytes below each function, itself included, and with which call they begin."""

    def __init__(self, code, rules):
        self.code, self.rules = code, rules
        self.graph = {function: code.calls[function] | code.jumps[function] for function in code.own}
        self.limits = rules.limits(code) if rules else {}
        self.depth, self.next, self.rings = {}, {}, []
        for members in circles(self.graph):
            if not is_circle(members, self.graph):
                self.follow(members[0])
                continue
            self.rings.append(members)
            if rules:
                self.unroll(members)
            else:
                self.count_once(members)

    def added(self, function, callee, below):
        """What a function has on the stack with the bytes of a callee below it. Who is jumped to takes the place of who jumps."""
        jumps_only = callee in self.code.jumps[function] and callee not in self.code.calls[function]
        return below if jumps_only else self.code.own[function] + below

    def deepest_outside(self, function, inside):
        """The deepest call that leaves a circle."""
        best, callee = self.code.own[function], None
        for other in self.graph[function] - inside:
            depth = self.added(function, other, self.depth[other])
            if depth > best:
                best, callee = depth, other
        return best, callee

    def follow(self, function):
        self.depth[function], self.next[function] = self.deepest_outside(function, set())

    def count_once(self, members):
        """A circle without rules: the deepest path on which each member is at most once; if there are too many, all of them."""
        inside = set(members)
        deepest = {member: self.deepest_outside(member, inside)[0] for member in members}
        bit = {member: 1 << number for number, member in enumerate(members)}
        known = {}

        def walk(member, behind):
            if (member, behind) not in known:
                if len(known) >= MOST_WAYS:
                    raise OverflowError
                ahead = [other for other in self.graph[member] & inside if not behind & bit[other]]
                below = [self.added(member, other, walk(other, behind | bit[other])) for other in ahead]
                known[member, behind] = max([deepest[member], *below])
            return known[member, behind]

        try:
            depths = {member: walk(member, bit[member]) for member in members}
        except OverflowError:
            frames = sum(self.code.own[member] for member in members)
            below = {callee for member in members for callee in self.graph[member] - inside}
            depths = dict.fromkeys(members, frames + max((self.depth[callee] for callee in below), default=0))
        for member in members:
            self.depth[member], self.next[member] = depths[member], None

    def unroll(self, members):
        """A circle with rules: the deepest path on which no function is more often than its rule says."""
        inside = set(members)
        unlimited = inside - self.limits.keys()
        rest = {member: self.graph[member] & unlimited for member in unlimited}
        left = [ring for ring in circles(rest) if is_circle(ring, rest)]
        for ring in left:
            names = "\n    ".join(self.code.name(member) for member in shortest_circle(ring, rest))
            self.rules.complain(f"no rule breaks the circles of {len(ring)} functions, for example this one:\n    {names}")
        if left:
            self.count_once(members)
            return
        here = []
        for member in sorted(inside & self.limits.keys()):
            if self.limits[member] not in here:
                here.append(self.limits[member])
        for rule in here:
            rule["uses"] += 1
        deepest = {member: self.deepest_outside(member, inside) for member in members}
        known = {}

        def enter(member, counts):
            """The counts after this member, `None` if it has been there as often as it can be."""
            if member not in self.limits:
                return counts
            place = here.index(self.limits[member])
            if counts[place] == here[place]["times"]:
                return None
            return counts[:place] + (counts[place] + 1,) + counts[place + 1 :]

        def walk(member, counts):
            if (member, counts) not in known:
                best, (depth, callee) = None, deepest[member]
                for other in self.graph[member] & inside:
                    then = enter(other, counts)
                    if then is not None:
                        below = self.added(member, other, walk(other, then))
                        if below > depth:
                            depth, callee, best = below, other, then
                known[member, counts] = depth, callee, best
            return known[member, counts][0]

        for member in members:
            counts = enter(member, (0,) * len(here))
            self.depth[member] = walk(member, counts)
            self.next[member] = (known, counts)

    def path(self, function):
        """The functions of the deepest path from this one."""
        found = []
        while function is not None:
            found.append(function)
            step = self.next[function]
            if not isinstance(step, tuple):
                function = step
                continue
            known, counts = step
            while counts is not None:
                _, function, counts = known[function, counts]
                if counts is not None:
                    found.append(function)
        return found


def examine(path, rules, arguments):
    code = Code(path)
    if rules:
        Types(code).connect(rules)
        rules.cut(code)
    depths = Depths(code, rules)
    entries = code.entries()
    deepest = max(entries, key=depths.depth.get)
    depth = depths.depth[deepest]
    print(f"{path}: {len(code.own)} functions, {len(entries)} of them called from elsewhere")
    print(f"  largest frame: {code.largest} bytes")
    print(f"  deepest path: {depth} bytes, from {code.name(deepest)}")
    print(f"  circles: {len(depths.rings)}, of {sum(map(len, depths.rings))} functions")
    if arguments.path:
        for function in depths.path(deepest):
            print(f"  {code.own[function]:6} {code.name(function)}")
    if depth > arguments.most:
        print(f"  deeper than {arguments.most} bytes")
    return depth <= arguments.most


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=12 << 10, metavar="BYTES")
    parser.add_argument("--path", action="store_true", help="the functions of the deepest path, with their bytes")
    parser.add_argument("--rules", metavar="RULES", help="the images have types: follow indirect calls, too")
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    arguments = parser.parse_args()
    sys.setrecursionlimit(100000)
    rules = Rules(arguments.rules) if arguments.rules else None
    results = [examine(image, rules, arguments) for image in arguments.images]
    complaints = [*rules.complaints, *rules.unused()] if rules else []
    for complaint in complaints:
        print(f"{arguments.rules}: {complaint}", file=sys.stderr)
    sys.exit(0 if all(results) and not complaints else 1)


if __name__ == "__main__":
    main()
