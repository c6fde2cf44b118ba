"""Something to do when the program imports a module: nothing is imported on its behalf but torch,
and what would have been read at that import is read later.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

Then = Callable[[ModuleType], None]
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_OTHER_BACKEND = "backend:cudaMallocAsync"


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


def track_allocator_settings(refuse: Callable[[str], None]) -> None:
    """Settings that the program puts into its environment are handed to torch, which reads them
    when it is imported, and was imported before. refuse: called with what is not modelled, must not
    return
    """

    def seen(event: str, args: tuple[Any, ...]) -> None:
        if event == "os.putenv" and (name := os.fsdecode(args[0])) in _ALLOCATOR:
            _apply_setting(name, os.fsdecode(args[1]), refuse)

    sys.addaudithook(seen)


def _apply_setting(name: str, value: str, refuse: Callable[[str], None]) -> None:
    if _OTHER_BACKEND in value.replace(" ", ""):
        refuse(f"{_OTHER_BACKEND}, which the program sets by {name}")
    apply: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if apply is None:  # torch before 2.9
        apply = torch._C._cuda_cudaCachingAllocator_set_allocator_settings
    apply(value)


def open_virtual_runtime() -> None:
    """Who opens torch's CUDA runtime by its file is given the virtual one, which has its names: the
    file's own would look for a driver.
    """
    begin = ctypes.CDLL.__init__

    def opened(library: ctypes.CDLL, name: Any, *args: Any, **kwargs: Any) -> None:
        file = os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else ""
        is_runtime = os.path.basename(file).startswith("libcudart")
        begin(library, None if is_runtime else name, *args, **kwargs)
        library._name = name

    ctypes.CDLL.__init__ = opened  # type: ignore[method-assign, assignment]


def run_script(argv: list[str], path: str) -> None:
    """Runs a script, or `-m` a module, as Python would. path: a folder whose packages come before
    all others, empty for none
    """
    is_module = argv[0] == "-m"
    sys.argv = argv[1:] if is_module else argv
    sys.path.insert(0, os.getcwd() if is_module else str(Path(argv[0]).resolve().parent))
    if path:
        import_from(path)
    if is_module:
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(argv[0], run_name="__main__")


def import_from(folder: str) -> None:
    """Packages of a folder come before all others, also in processes that this one starts."""
    sys.path.insert(0, folder)
    others = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, others)))


def imported_from(folder: str) -> int:
    """How many of the modules that were imported are from a folder."""
    inside = os.path.join(os.path.realpath(folder), "")
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return sum(
        isinstance(file, str) and os.path.realpath(file).startswith(inside) for file in files
    )
