"""Runs a script with a piece of a library's text replaced: `without.py MODULE TEXT BY SCRIPT ...`.

It shows that the silence of a program hangs on that line.
"""

from __future__ import annotations

import importlib.machinery
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType


class Edited(importlib.machinery.SourceFileLoader):
    """Loads a module from its text, with one piece of it replaced."""

    def __init__(self, name: str, path: str, text: str, by: str) -> None:
        super().__init__(name, path)
        self._text, self._by = text, by

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        if self._text not in source:
            raise SystemExit(f"{fullname} of this release does not hold {self._text!r}")
        return compile(source.replace(self._text, self._by), self.path, "exec")


class Editor(MetaPathFinder):
    """Finds one module, to be edited."""

    def __init__(self, module: str, text: str, by: str) -> None:
        self._module, self._text, self._by = module, text, by

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin:
            spec.loader = Edited(fullname, spec.origin, self._text, self._by)
        return spec


def main() -> None:
    module, text, by, script, *arguments = sys.argv[1:]
    if module in sys.modules:
        raise SystemExit(f"{module} is imported already")
    sys.meta_path.insert(0, Editor(module, text, by))
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
