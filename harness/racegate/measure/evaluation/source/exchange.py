"""Exchange: a mutant's code in the place of what this process has imported, or another one will.

Almost every edit is within a function, whose code is exchanged where it lives. What an import does
(a constant, a default, a field) is had by importing all of the project anew. A process that a test
starts gets a tree with one file in the place of another, or a compiler that reads one source in the
place of another; both are given in the environment, which it inherits.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType

from racegate.history.breakage import PACKAGES
from racegate.scenario.errors import BadInputError
from racegate.targets.common.inside.exchange import compiled, exchange_code

# A compiler: whatever it is given, with the mutant for the source that it is of.
COMPILER = """#!/bin/sh
for word; do
    shift
    if [ "$word" = {source} ]; then word={mutant}; fi
    set -- "$@" "$word"
done
exec {compiler} -I {beside} "$@"
"""


def exchange(module: ModuleType, before: bytes, after: bytes) -> bool:
    """Gives the functions of a module of the project the code of a mutant; what they all remember
    is forgotten. False if that is not to be had so: see `exchange_code`.
    """
    is_exchanged = bool(exchange_code(module, before, after))
    if is_exchanged:
        forget_results()
    return is_exchanged


def forget_results() -> None:
    """What functions of the project remember, they may have computed before the exchange."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES:
            for thing in list(vars(module).values()):
                forget = getattr(thing, "cache_clear", None)
                if forget is not None and not isinstance(thing, type):
                    forget()


class _MutantLoader(SourceFileLoader):
    """Loads one module from text."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        super().__init__(name, str(path))
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compiled(self._source, Path(self.path))


class _MutantFinder(MetaPathFinder):
    """Finds the mutant where its module is asked for."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        self._name = name
        self._path = path
        self._source = source

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _MutantLoader(fullname, self._path, self._source)
        return spec_from_file_location(fullname, self._path, loader=loader)


def import_anew(name: str, path: Path, source: bytes, *, beside: Path | None = None) -> None:
    """From now on every module of the project is imported again when it is asked for, and one of
    them from this source. What was imported before stays with those who have it.

    beside: a folder whose modules are imported again too, as tests are
    """
    for each, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_beside = beside is not None and file and Path(file).is_relative_to(beside)
        if each.partition(".")[0] in PACKAGES or is_beside:
            del sys.modules[each]
    sys.meta_path.insert(0, _MutantFinder(name, path, source))


def lay_over(root: Path, file: str, text: bytes, folder: Path) -> None:
    """Makes a package in the folder that is the file's own but for this file, and puts it first on
    the path of processes. file: from the root, `harness/racegate/...`
    """
    top, *names = Path(file).parts
    here, there = root / top, folder
    for name, inner in pairwise(names):
        here, there = here / name, there / name
        there.mkdir()
        for each in here.iterdir():
            if each.name not in ("__pycache__", inner):
                (there / each.name).symlink_to(each)
    (there / names[-1]).write_bytes(text)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])


def compile_with(root: Path, file: str, text: bytes, folder: Path) -> None:
    """Makes a compiler in the folder that reads the mutant, and an empty cache of what is compiled.
    Raises BadInputError if there is no compiler.
    """
    plain = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if plain is None:
        raise BadInputError("mutants of C need a compiler: install gcc or clang")
    mutant, compiler = folder / Path(file).name, folder / "cc"
    mutant.write_bytes(text)
    words = {
        "source": root / file,
        "mutant": mutant,
        "compiler": plain,
        "beside": (root / file).parent,
    }
    quoted = {name: shlex.quote(str(path)) for name, path in words.items()}
    compiler.write_text(COMPILER.format(**quoted))
    compiler.chmod(0o755)
    os.environ.update(CC=str(compiler), XDG_CACHE_HOME=str(folder / "cache"))
