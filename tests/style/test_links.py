#!/usr/bin/env python3
"""Runs the check of links on small trees: what it must name, and what it must let pass.

Usage: test_links.py SCRIPT"""
import pathlib
import sys
import tempfile

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
    links, failed = loader.load(script), 0
    for what, page, wanted in TABLE:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**TREE, "docs/page.md": page}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            found = links.check(root)
        wrong = len(found) != len(wanted) or not all(map(str.startswith, found, wanted))
        print("%s: %s" % (what, "found %s" % found if wrong else "ok"))
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
