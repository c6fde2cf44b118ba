"""Runs when a Python begins that a program on the virtual device has started: as soon as it imports
torch, it comes to whoever leads the run. Standard library alone: this may be any Python.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _AfterTorch(MetaPathFinder):
    """Joins the run right after the body of torch has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        loader = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _forget(os.environ)
            importlib.import_module("racegate.interpose.started.joining").join_run()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _forget(environment: MutableMapping[str, str]) -> None:
    """What is not for processes that this one starts: it gives them what they need."""
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    left = os.pathsep.join(path for path in paths if path != _HERE)
    environment.pop("PYTHONPATH", None)
    if left:
        environment["PYTHONPATH"] = left
    environment.pop("LD_PRELOAD", None)


def _begin() -> None:
    sys.path[:] = [path for path in sys.path if path != _HERE]
    if importlib.util.find_spec("racegate") is None:  # another environment: it has no device
        _forget(os.environ)
    elif "RACEGATE_DOOR" in os.environ:
        sys.meta_path.insert(0, _AfterTorch())
    other = PathFinder.find_spec("sitecustomize")
    if other is not None and other.loader is not None:  # the one of this Python
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(other)
        other.loader.exec_module(module)


_begin()
