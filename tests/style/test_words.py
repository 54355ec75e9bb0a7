#!/usr/bin/env python3
"""Runs the check of words on small trees: what it must name, and what it must let pass.

Usage: test_words.py SCRIPT"""
import sys

sys.dont_write_bytecode = True
import loader

LIST = "conduit -> endpoint\nguest -> client; but vm_guest # QEMU's word\nguest -> client; but a_guest_of_qemu\n"
KEPT = {"src/kept.c": "int vm_guest, a_guest_of_qemu;\n"}

# What, files by path, the beginnings of the sentences that are wanted.
TABLE = [
    ("other names are allowed", {"src/a.c": "int endpoint, conduits_;\n"}, []),
    ("a listed part", {"src/a.c": "int a;\nint open_conduit(void);\n"}, ["src/a.c:2: open_conduit: write 'endpoint'"]),
    ("in capitals", {"src/a.h": "#define CONDUIT_COUNT 1\n"}, ["src/a.h:1: CONDUIT_COUNT: "]),
    ("once each", {"src/a.c": "int conduit;\nvoid f(void) { conduit = 1; }\n"}, ["src/a.c:1: conduit: "]),
    ("a file name", {"tests/conduit-list.sh": ""}, ["tests/conduit-list.sh: conduit_list: "]),
    ("prose", {"src/a.c": "/* A conduit.\n * conduit */\nchar *a = \"a \\\" conduit\"; // conduit\n"}, []),
    ("an include", {"src/a.c": '#include "conduit.h"\n'}, []),
    ("an exception holds for one name", {"src/a.c": "int guest;\n"}, ["src/a.c:1: guest: write 'client'"]),
    ("an exception that no name needs", {"src/kept.c": "int vm_guest;\n"},
     ["not needed any more: guest; but a_guest_of_qemu"]),
]


def main(script):
    words = loader.load(script)
    table = [(what, {**KEPT, **files}, wanted) for what, files, wanted in TABLE]
    return 1 if loader.count_wrong(table, lambda root: words.check(root, *words.read_words(LIST))) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
