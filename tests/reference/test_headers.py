#!/usr/bin/env python3
"""Runs the reader of headers on small comments and headers: what it takes for an item, a title, code, a function.

Usage: test_headers.py FOLDER   FOLDER has headers.py."""
import sys

sys.dont_write_bytecode = True

# What, the comment, its parts.
BLOCKS = [
    ("one line", "/* Returns it. */", [("text", "", ["Returns it."])]),
    ("two lines", "/* Returns\n * it. */", [("text", "", ["Returns", "it."])]),
    ("behind code, over two lines", "/* so far,\n\t\t  and here */", [("text", "", ["so far,", "and here"])]),
    ("two paragraphs", "/* One.\n *\n * Two. */", [("text", "", ["One."]), ("text", "", ["Two."])]),
    ("terms", "/* These:\n *   Buffers   belong\n *             to it.\n *   In place  too.\n * End. */",
     [("text", "", ["These:"]), ("term", "Buffers", ["belong", "to it."]), ("term", "In place", ["too."]),
      ("text", "", ["End."])]),
    ("terms with tabs", "/* These:\n\t *\t\"a\"\tone\n\t *\t\"bc\"\ttwo */",
     [("text", "", ["These:"]), ("term", '"a"', ["one"]), ("term", '"bc"', ["two"])]),
    ("points", "/* First:\n *   - one\n *     more\n *   - two */",
     [("text", "", ["First:"]), ("bullet", "-", ["one", "more"]), ("bullet", "-", ["two"])]),
    ("numbers", "/* 1. one\n * 2. two */", [("number", "1.", ["one"]), ("number", "2.", ["two"])]),
    ("no point", "/* At least\n * -1 or\n * -s. */", [("text", "", ["At least", "-1 or", "-s."])]),
    ("a title", "/* Text.\n *\n * Life of a rank\n *   It ends. */",
     [("text", "", ["Text."]), ("title", "", ["Life of a rank"]), ("text", "", ["It ends."])]),
    ("code", "/* Call it:\n *\n *     if (a)\n *             b();\n *\n * then. */",
     [("text", "", ["Call it:"]), ("code", "", ["if (a)", "        b();"]), ("text", "", ["then."])]),
]

# The comment, its first clause.
SUMMARIES = [
    ("/* Waits. Then it ends. */", "waits"),
    ("/* Returns a number (0 .. size - 1); never fails. */", "returns a number (0 .. size - 1)"),
    ("/* Returns \"0.1.0\": a string. */", "returns \"0.1.0\""),
    ("/* collet: for tools, as\n * they say. */", "for tools, as they say"),
]

# The code, its functions.
FUNCTIONS = [
    ("COLLET_API int collet_a(void);\n", ["collet_a"]),
    ("COLLET_MUST_USE COLLET_API collet_status collet_a(\n\tint b, int c);\nCOLLET_API int *collet_d(int e);\n",
     ["collet_a", "collet_d"]),
    ("static inline int collet_a(int b)\n{\n\treturn collet_c(b);\n}\n", ["collet_a"]),
    ("extern COLLET_API const struct collet_a collet_b;\n", []),
    ("typedef struct collet_a {\n\tint (*b)(int c);\n} collet_a;\n", []),
]

HEADER = ("/* A file. */\n#ifndef A\n#define A\n\n/* ---- Title ---- */\n\n/* For all. */\n\n/* One. */\nint a;\n"
          "int b;\n/* Two. */\nstruct c {\n\t/* Three. */\n\tint d;\n\n\tint e;\n};\n\n#endif\n")
UNITS = ["/* A file. */", "/* ---- Title ---- */", "/* For all. */", "/* One. */", "/* Two. */", ""]


def main(folder):
    sys.path.insert(0, folder)
    import headers

    rows = [(what, headers.blocks(comment), wanted) for what, comment, wanted in BLOCKS]
    rows += [(wanted, headers.summary(comment), wanted) for comment, wanted in SUMMARIES]
    rows += [(code, [name for _, name in headers.FUNCTION.findall(code)], wanted) for code, wanted in FUNCTIONS]
    rows += [("units", [comment for comment, _ in headers.units(HEADER)], UNITS)]
    rows += [("nothing is left out", "".join(a + b for a, b in headers.units(HEADER)), HEADER)]
    failed = 0
    for what, found, wanted in rows:
        print("%r: %s" % (what, "ok" if found == wanted else "found %r" % (found,)))
        failed += found != wanted
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
