#!/usr/bin/env python3
"""Runs the check of links on small trees: what it must name, and what it must let pass.

Usage: test_links.py SCRIPT"""
import sys

sys.dont_write_bytecode = True
import loader

TREE = {"src/ring.c": "", "docs/other.md": "# Other\n\n## The `first`, and a second\n\n```\n# no heading\n```\n"}

# What, the text of docs/page.md, the beginnings of the sentences that are wanted.
TABLE = [
    ("a file", "[x](other.md) and [y](../src/ring.c)", []),
    ("no such file", "[x](ring.c)", ["docs/page.md: [](ring.c): no such file"]),
    ("a heading", "[x](other.md#the-first-and-a-second)", []),
    ("no such heading", "[x](other.md#no-heading)", ["docs/page.md: [](other.md#no-heading): no such heading"]),
    ("a heading of its own", "# Here\n[x](#here) [y](#there)", ["docs/page.md: [](#there): no such heading"]),
    ("another site", "[x](https://example.org/ring.c)", []),
    ("paths", "`src/ring.c`, `src/`, `src/*.c --all` and `ring/that.c`", []),
    ("no such path", "a span\nof `two\nlines`, and `src/tree.c -n`", ["docs/page.md: `src/tree.c`: no such file"]),
    ("placeholders", "`src/NAME.c`, `src/<name>.c`, `src/ring_NAME`", []),
    ("code", "```\n[x](ring.c) `src/tree.c`\n```\n", []),
]


def main(script):
    table = [(what, {**TREE, "docs/page.md": page}, wanted) for what, page, wanted in TABLE]
    return 1 if loader.count_wrong(table, loader.load(script).check) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
