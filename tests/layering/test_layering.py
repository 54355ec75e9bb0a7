#!/usr/bin/env python3
"""The layering check on small trees: what it must name, and what it must let pass.

Usage: test_layering.py SCRIPT"""
import sys

import loader

LONG = "int a;\n" * 501

# What, files by path, the rules that are broken.
TABLE = [
    ("down is allowed", {"src/engine/a.c": '#include "core/b.h"\n', "src/core/b.h": ""}, []),
    ("up is not", {"src/core/a.c": '#include "engine/b.h"\n', "src/engine/b.h": ""}, ["up core/a.c -> engine/b.h"]),
    ("nor is a neighbour", {"src/reduce/a.c": '#include "topology/b.h"\n', "src/topology/b.h": ""},
     ["up reduce/a.c -> topology/b.h"]),
    ("a file beside it counts as its folder's", {"src/engine/a.c": '#include "b.h"\n', "src/engine/b.h": ""}, []),
    ("the transport contract is its folder's", {"src/core/a.h": "#include <collet/transport.h>\n"},
     ["up core/a.h -> collet/transport.h"]),
    ("who is above may use it", {"src/engine/a.h": "#include <collet/transport.h>\n"}, []),
    ("GPUs are one folder's", {"src/ddp/a.c": '#include "cuda/b.h"\n', "src/cuda/b.h": ""},
     ["private ddp/a.c -> cuda/b.h"]),
    ("one name, one file", {"src/core/a.c": "", "src/engine/a.c": ""}, ["name core/a.c engine/a.c"]),
    ("but internal.h", {"src/core/internal.h": "", "src/engine/internal.h": ""}, []),
    ("long files", {"src/core/a.c": LONG}, ["long core/a.c"]),
    ("a folder without a tier", {"src/attic/a.c": ""}, ["folder attic/a.c"]),
    ("what src shares with programs", {"src/core/a.c": '#include "closest_name.h"\n', "common/closest_name.h": ""}, []),
    ("the rest of common/ is the programs'", {"src/core/a.c": '#include "gpu.h"\n', "common/gpu.h": ""},
     ["missing core/a.c -> gpu.h"]),
    ("a program's own and common headers",
     {"bench/a.c": '#include "b.h"\n#include "c.h"\n', "bench/b.h": "", "common/c.h": ""}, []),
    ("a program that reaches into the library", {"bench/a.c": '#include "core/b.h"\n', "src/core/b.h": ""},
     ["program bench/a.c -> core/b.h"]),
]


def main(script):
    layering, failed = loader.load(script), 0
    for what, files, wanted in TABLE:
        broken = loader.check_tree(
            files, lambda root: [*layering.check_source(root), *layering.check_programs(root)])
        found = [" ".join(wrong) for wrong in broken]
        wrong = found != wanted
        print("%s: %s" % (what, "found %s" % found if wrong else "ok"))
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1]))
