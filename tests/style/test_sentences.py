#!/usr/bin/env python3
"""Runs the check of sentences on small files: which sentences count, how long they are, and when a room fails.

Usage: test_sentences.py SCRIPT"""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys
import tempfile

LONG = "/* " + "word " * 30 + "*/\n"

# What, the text of a file, the words of each sentence that counts, whether the room passes.
TABLE = [
    ("one sentence", "/* Returns the number of ranks. */\n", [5], True),
    ("two sentences over three lines", "/* Closes the file. Opens\n * another one,\n * later. */\n", [3, 4], True),
    ("a paragraph ends a sentence", "/* first of three\n *\n * second of two */\n", [3, 3], True),
    ("line comments", "\t// Reads one line.\n", [3], True),
    ("short remarks do not count", "/* Never NULL. */\n", [], True),
    ("nor do comments behind code", "int a; /* a number that counts nothing */\n", [], True),
    ("a number is no end", "/* Waits for 1.5 seconds. */\n", [4], True),
    ("too many words", LONG, [30], False),
    ("the average counts", LONG + "/* Returns the size. */\n" * 2, [30, 3, 3], True),
]


def load(script):
    loader = importlib.machinery.SourceFileLoader("sentences", script)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sentences", loader))
    loader.exec_module(module)
    return module


def main(script):
    sentences, failed = load(script), 0
    for what, text, wanted, passes in TABLE:
        found = [count for comment in sentences.comments(text) for count in sentences.lengths(comment)]
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "src" / "room").mkdir(parents=True)
            (pathlib.Path(folder) / "src" / "room" / "a.c").write_text(text, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()):
                passed = sentences.main(folder) == 0
        wrong = found != wanted or passed != passes
        print("%s: %s" % (what, "found %s, %s" % (found, passed) if wrong else "ok"))
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1]))
