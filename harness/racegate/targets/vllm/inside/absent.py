"""Packages that are left out of an engine's environment, and that models of images import."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

IMAGES = "torchvision"


class AbsentObject:
    """Something of a package that is not there: it can be named, but not called."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> AbsentObject:
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentObject(f"{self._path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"racegate: {self._path} was called, and is not installed here")


class AbsentPackage(MetaPathFinder, Loader):
    """Finds a package and all its modules, with every name in them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module of the package; None of others."""
        is_own = fullname.partition(".")[0] == self._name
        return ModuleSpec(fullname, self, is_package=True) if is_own else None

    def exec_module(self, module: ModuleType) -> None:
        """Gives it a version, which is compared, and every other name."""
        named: Any = module
        named.__version__ = "0.0"

        def name_in(name: str) -> AbsentObject:
            if name.startswith("__"):
                raise AttributeError(name)
            return AbsentObject(f"{module.__name__}.{name}")

        named.__getattr__ = name_in


def answer_for(package: str) -> None:
    """From here on a package that is not installed can be imported."""
    if importlib.util.find_spec(package) is None:
        sys.meta_path.append(AbsentPackage(package))
