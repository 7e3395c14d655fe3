#!/usr/bin/env python3
"""Keeps a fuzzer's inputs as lines of hex digits, the shortest first: one file instead of hundreds.

    tools/corpus.py pack FOLDER FILE      the inputs of a folder
    tools/corpus.py unpack FILE FOLDER    a folder with the inputs, one each
"""

import pathlib
import sys


def pack(folder, file):
    inputs = {path.read_bytes() for path in folder.iterdir() if path.is_file()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{one.hex()}\n" for one in sorted(inputs, key=lambda one: (len(one), one)) if one))


def unpack(file, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate(file.read_text().split()):
        (folder / f"{number:05}").write_bytes(bytes.fromhex(line))


def main():
    actions = {"pack": pack, "unpack": unpack}
    if len(sys.argv) != 4 or sys.argv[1] not in actions:
        sys.exit(__doc__.strip())
    actions[sys.argv[1]](pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))


main()
