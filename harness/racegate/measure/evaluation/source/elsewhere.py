"""Mutants for processes that a test starts: a tree that has one file in the place of another, and a
compiler that reads one source in the place of another. Both are given in the environment, which
such a process inherits; the libraries that it loads are compiled on their first use.
"""

from __future__ import annotations

import os
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

from racegate.scenario.errors import BadInputError

# A compiler: whatever it is given, with the mutant for the source that it is of.
COMPILER = """#!/bin/sh
for word; do
    shift
    if [ "$word" = {source} ]; then word={mutant}; fi
    set -- "$@" "$word"
done
exec {compiler} -I {beside} "$@"
"""


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
