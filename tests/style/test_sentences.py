#!/usr/bin/env python3
"""Runs the check of sentences on small files: which sentences count, how long they are, and when a tree fails.

Usage: test_sentences.py SCRIPT"""
import contextlib
import io
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import loader

LONG = "/* " + "word " * 30 + "*/\n"
LONG_LINE = "word " * 30 + "\n"
LINES = "A list.\n\n" * 1750

# What, the file, its text, the words of each sentence that counts, whether the tree passes.
TABLE = [
    ("one sentence", "src/core/a.c", "/* Returns the number of ranks. */\n", [5], True),
    ("two sentences over three lines", "src/core/a.c", "/* Closes the file. Opens\n * another one,\n * later. */\n",
     [3, 4], True),
    ("a paragraph ends a sentence", "src/core/a.c", "/* first of three\n *\n * second of two */\n", [3, 3], True),
    ("line comments", "src/core/a.c", "\t// Reads one line.\n", [3], True),
    ("short remarks do not count", "src/core/a.c", "/* Never NULL. */\n", [], True),
    ("nor do comments behind code", "src/core/a.c", "int a; /* a number that counts nothing */\n", [], True),
    ("nor do lists of names", "src/core/a.c", "/* Writes one, two, three, four, five, six. */\n", [], True),
    ("a number is no end", "src/core/a.c", "/* Waits for 1.5 seconds. */\n", [4], True),
    ("a parenthesis may end a sentence", "src/core/a.c", "/* (Waits for it.) Closes the file. */\n", [3, 3], True),
    ("too many words", "src/core/a.c", LONG, [30], False),
    ("the average counts", "src/core/a.c", LONG + "/* Returns the size. */\n" * 2, [30, 3, 3], True),
    ("a page", "README.md", "# A heading is none\nIt sends *all* bytes.\nIt waits.\n", [4], True),
    ("a page in a folder", "docs/design/a.md", LONG_LINE, [30], False),
    ("a page elsewhere", "examples/a.md", LONG_LINE, [], True),
    ("items of a list", "docs/a.md", "- The first\n  of two.\n- The second item\n\n  with a paragraph\n1. and a third",
     [4, 3, 3, 3], True),
    ("tables and code", "docs/a.md", "| a b c | d |\n\n    code with spaces\n\n```\nmore of it\n```\n", [], True),
    ("spans of code and links", "docs/a.md", "Run `make all -j` as [this page](a/b.md) says.\n", [5], True),
    ("what a program writes", "docs/a.md", "<!-- a-2: begin -->\n" + LONG_LINE * 4000 + "<!-- a-2: end -->\n", [],
     True),
    ("a man page", "docs/man/a.1", ".TH A 1\n.SH NAME\na \\- does this or that\n.SH OPTIONS\n"
     ".TP\n.BR \\-a \", \" \\-b \" \\fIN\"\nIt takes\n.BR \\-c (1)\nas it is.\n.\\\" A remark that is long.\n",
     [6], True),
    ("code of a man page", "docs/man/a.7", ".SH A\n.nf\nrun this or that\n.fi\n\\fBIt\\fP is \\-\\-no code.\n", [4],
     True),
    ("a long man page", "docs/man/a.7", ".SH A\n" + LONG_LINE, [30], False),
    ("as many lines as docs may have", "docs/a.md", LINES, [], True),
    ("one more", "docs/a.md", LINES + "A line.\n", [], False),
    ("not in docs", "NEWS.md", LINES + "A line.\n", [], True),
]


def main(script):
    sentences, failed = loader.load(script), 0
    for what, name, text, wanted, passes in TABLE:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
            found = [count for _, judged in sentences.texts(root) for part in judged
                     for count in sentences.lengths(part)]
            with contextlib.redirect_stdout(io.StringIO()):
                passed = sentences.main(folder) == 0
        wrong = found != wanted or passed != passes
        print("%s: %s" % (what, "found %s, %s" % (found, passed) if wrong else "ok"))
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
