"""Loads a script without a suffix as a module, so that a test can call its functions on small trees of files."""
import importlib.machinery
import importlib.util
import pathlib
import tempfile


def load(path):
    loader = importlib.machinery.SourceFileLoader("script", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("script", loader))
    loader.exec_module(module)
    return module


def check_tree(files, check):
    """Returns check(folder), for a folder with these files, by path."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return check(root)


def count_wrong(table, check):
    """Prints and counts the rows for which check(folder) says something else. A row: what it is, files by path, and the
    beginnings of the sentences that are wanted."""
    count = 0
    for what, files, wanted in table:
        found = check_tree(files, check)
        wrong = len(found) != len(wanted) or not all(map(str.startswith, found, wanted))
        print("%s: %s" % (what, "found %s" % found if wrong else "ok"))
        count += wrong
    return count
