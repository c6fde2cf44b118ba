"""Something to do when the program imports a module: nothing is imported on its behalf."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """Calls a function with a module right after its body has run."""

    def __init__(self, then: dict[str, Then]) -> None:
        self._then = then

    def install(self) -> None:
        """From now on; modules that are imported already are done at once."""
        for name in [name for name in self._then if name in sys.modules]:
            self._then.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        then = self._then.pop(fullname, None)
        if then is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            then(module)

        loader.exec_module = exec_module
        return spec
