"""Loads a script without a suffix as a module, so that a test can call its functions."""
import importlib.machinery
import importlib.util


def load(path):
    loader = importlib.machinery.SourceFileLoader("script", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("script", loader))
    loader.exec_module(module)
    return module
