"""C sources into a library, once: what was compiled is kept under a digest of all that went in."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from racegate.order.native.errors import BadInput

FLAGS = ("-shared", "-fPIC", "-O2", "-std=gnu11")


def find_compiler() -> tuple[str, ...]:
    """The command of a C compiler: $CC, cc, gcc, clang, or the one in the ziglang package."""
    named = os.environ.get("CC")
    for name in (named, "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return (name,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise BadInput(
        "no C compiler: the virtual CUDA runtime is compiled on first use. Install gcc or clang, "
        "or `pip install ziglang`, which brings one"
    )


def cache_folder() -> Path:
    """Where compiled libraries are kept: the user's cache directory."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "racegate" / "interpose"


def compiled(
    name: str,
    sources: Iterable[Path],
    *,
    read: Iterable[Path],
    flags: tuple[str, ...] = (),
    made: tuple[str, str] | None = None,
) -> Path:
    """Path of the library `name`: from the cache, or compiled now.

    read: all files that the compiler may read; made: name and text of a source that is in no file.
    Raises BadInput if there is no compiler, or compiling fails.
    """
    compiler = find_compiler()
    digest = hashlib.sha256(f"{compiler} {FLAGS} {flags} {made}".encode())
    for path in sorted(read):
        digest.update(path.read_bytes())
    folder = cache_folder() / digest.hexdigest()[:16]
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            written = [Path(work) / made[0]] if made is not None else []
            for path in written:
                path.write_text(made[1] if made is not None else "")
            _compile((*compiler, *FLAGS, *flags), (*sources, *written), Path(work) / name)
            os.replace(Path(work) / name, folder / name)
    return folder / name


def _compile(command: tuple[str, ...], sources: tuple[Path, ...], out: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    output = [f"-Wl,-soname,{out.name}", "-o", str(out), "-ldl", "-lpthread"]
    done = subprocess.run(
        [*command, *map(str, sources), *output],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise BadInput(f"{out.name} does not compile:\n{done.stderr[-4000:]}")
