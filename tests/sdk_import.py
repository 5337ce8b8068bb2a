"""Imports the Python SDK temporarily from a folder: its source in quick tests, an installed wheel in others."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


@contextmanager
def sdk_from(directory: Path) -> Iterator[ModuleType]:
    """Import `whabuzz` from this folder. At the end of the block, the import is undone."""
    sys.path.insert(0, str(directory))
    module = importlib.import_module("whabuzz")
    assert str(directory) in str(module.__file__)
    try:
        yield module
    finally:
        sys.path.remove(str(directory))
        for name in [name for name in sys.modules if name.partition(".")[0] == "whabuzz"]:
            del sys.modules[name]
