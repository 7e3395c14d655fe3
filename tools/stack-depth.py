#!/usr/bin/env python3
"""How deep the stack gets in a driver's image (x86-64), over every path of direct calls.

    tools/stack-depth.py [--most BYTES] [--list] IMAGE...

Frames come from the unwind tables, calls from the disassembly (objdump). A path begins at a function that others can call (the
table of Control Flow Guard, and the entry point) and follows direct calls and jumps. Functions that can call each other in a
circle count once each: so much is needed if none of them runs twice on a path. Destructors are most of these: an object drops what
it refers to, whose type could refer to its like.

What this does not say: where an indirect call goes. The image has no types, and to let each go anywhere says nothing. So a path ends
at an indirect call, and the row below has the deepest place at which one is made. A call of Windows counts as its return address.

Ends with 1 if a path is deeper than BYTES (12288 by default).
"""

import argparse
import bisect
import re
import struct
import subprocess
import sys


class Image:
    def __init__(self, path):
        self.data = data = open(path, "rb").read()
        pe = struct.unpack_from("<I", data, 0x3C)[0]
        if data[:2] != b"MZ" or data[pe : pe + 4] != b"PE\0\0" or struct.unpack_from("<H", data, pe + 4)[0] != 0x8664:
            sys.exit(f"{path}: no image for x86-64")
        sections, optional_size = struct.unpack_from("<H", data, pe + 6)[0], struct.unpack_from("<H", data, pe + 20)[0]
        optional = pe + 24
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
        sys.exit(f"address {rva:#x} is in no section")

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
                    sys.exit(f"unwind operation {operation} of {begin:#x} is not known")
                index += step
            functions[begin] = [end, frame]
            if flags & 4:
                parts[begin] = struct.unpack_from("<I", self.data, place + 4 + 2 * (count + count % 2))[0]
        return functions, parts

    def guard(self):
        """What indirect calls can go to."""
        place = self.at(self.directories[10][0])
        _, _, table, count = struct.unpack_from("<QQQQ", self.data, place + 0x70)
        stride = 4 + (struct.unpack_from("<I", self.data, place + 0x90)[0] >> 28)
        first = self.at(table - self.base)
        targets = [struct.unpack_from("<I", self.data, first + stride * index)[0] for index in range(count)]
        return set(targets)


INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(call|jmp|j[a-z]+)\s+(.*)$")


def calls(image, path, functions, parts):
    """For each function: what it calls, what it jumps to at its end, and if it calls indirectly."""
    text = subprocess.run(["objdump", "-d", "-M", "intel", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    begins = sorted(functions)
    iat, iat_size = image.directories[12]
    targets = image.guard()
    edges, jumps, indirect = {}, {}, set()

    def owner(rva):
        index = bisect.bisect_right(begins, rva) - 1
        if index >= 0 and rva < functions[begins[index]][0]:
            begin = begins[index]
            while begin in parts:
                begin = parts[begin]
            return begin
        return None

    # A leaf function has no entry in the tables: it is what lies between those that have. It has no frame, and calls nobody.
    for line in text.stdout.splitlines():
        found = INSTRUCTION.match(line)
        if not found:
            continue
        address, kind, operand = int(found[1], 16) - image.base, found[2], found[3]
        here = owner(address)
        direct = re.match(r"(?:0x)?([0-9a-f]+)\b(?!.*\[)", operand)
        if direct:
            there = int(direct[1], 16) - image.base
            target = owner(there)
            if kind == "call":
                if here is None:
                    sys.exit(f"{path}: a function without a frame calls at {address:#x}")
                edges.setdefault(here, set()).add(target if target is not None else there)
            elif target is not None and target != here and here is not None:
                jumps.setdefault(here, set()).add(target)
            continue
        through = re.search(r"# (?:0x)?([0-9a-f]+)", operand)
        place = int(through[1], 16) - image.base if through else None
        imported = place is not None and iat <= place < iat + iat_size
        if imported:
            continue
        # The jump of a table of branches stays in its function.
        if kind == "call" or (kind == "jmp" and place is not None):
            if here is not None:
                indirect.add(here)
    return edges, jumps, indirect, targets, owner


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


def examine(path, most, listed):
    image = Image(path)
    functions, parts = image.frames()
    edges, jumps, indirect, targets, owner = calls(image, path, functions, parts)
    graph = {function: edges.get(function, set()) | jumps.get(function, set()) for function in functions if function not in parts}
    # A function has its frame, and the place where its caller's address lies.
    own = {function: functions[function][1] + 8 for function in graph}
    depth, site, rings = {}, {}, []
    for members in circles(graph):
        inside = set(members)
        if len(members) > 1 or members[0] in graph.get(members[0], ()):
            rings.append(members)
        frames = sum(own.get(member, 8) for member in members)
        below = {callee for member in members for callee in edges.get(member, set()) - inside}
        # Who is jumped to takes the place of who jumps.
        instead = {callee for member in members for callee in jumps.get(member, set()) - inside} if len(members) == 1 else set()
        if len(members) > 1:
            below |= {callee for member in members for callee in jumps.get(member, set()) - inside}
        all_depths = [frames + depth.get(callee, 8) for callee in below] + [depth.get(callee, 8) for callee in instead]
        all_sites = [frames] if inside & indirect else []
        all_sites += [frames + site[callee] for callee in below if callee in site]
        all_sites += [site[callee] for callee in instead if callee in site]
        for member in members:
            depth[member] = max([frames, *all_depths])
            if all_sites:
                site[member] = max(all_sites)
    entry_point = struct.unpack_from("<I", image.data, struct.unpack_from("<I", image.data, 0x3C)[0] + 24 + 16)[0]
    entries = {owner(target) for target in targets | {entry_point}} - {None}
    deepest = max(entries, key=depth.get)
    call = max((entry for entry in entries if entry in site), key=site.get)
    print(f"{path}: {len(graph)} functions, {len(entries)} of them called from elsewhere")
    print(f"  largest frame: {max(size for _, size in functions.values())} bytes")
    print(f"  deepest path: {depth[deepest]} bytes, from {image.base + deepest:#x}")
    print(f"  deepest indirect call: after {site[call]} bytes, from {image.base + call:#x}")
    print(f"  circles: {len(rings)}, of {sum(map(len, rings))} functions")
    if listed:
        for members in rings:
            print("    " + ", ".join(f"{image.base + member:#x}" for member in sorted(members)))
    if depth[deepest] > most:
        print(f"  deeper than {most} bytes")
    return depth[deepest] <= most


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=12 << 10)
    parser.add_argument("--list", action="store_true", help="the functions of each circle")
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    arguments = parser.parse_args()
    results = [examine(image, arguments.most, arguments.list) for image in arguments.images]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
