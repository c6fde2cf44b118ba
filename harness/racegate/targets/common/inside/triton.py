"""Triton in the environment of an engine: without a compiler for CPUs, which some have, and with
what its kernels did in engines that have ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

import msgspec

import racegate.interpose
import racegate.order
from racegate.interpose.kernels.interpreted.driver import VirtualDriver
from racegate.interpose.kernels.memo import Memo

FILE = "racegate_kernels"  # in the environment, so that it goes with it; one for each cell
FILE_BYTES_MAX = 1 << 27  # of what is in it


def answer_for_triton() -> None:
    """Triton asks its driver for a target and sizes, also where kernels are interpreted."""
    from triton.backends import backends
    from triton.runtime.driver import driver

    backends.pop("cpu", None)
    driver.set_active(VirtualDriver())


class EffectsFile(msgspec.Struct, frozen=True):
    """made_by: all that decides what a kernel of some digest does; effects: of a memo, packed"""

    made_by: str
    effects: bytes


class KeptEffects:
    """The effects of a memo, kept in a folder. A file that is not to be read, or was made by other
    packages, is as good as none. settings: of the engine's cell; with others it launches others
    """

    def __init__(
        self, memo: Memo, settings: Sequence[str], folder: Path = Path(sys.prefix)
    ) -> None:
        self._memo = memo
        cell = hashlib.sha256(repr(tuple(map(str, settings))).encode()).hexdigest()[:12]
        self._file = folder / f"{FILE}.{cell}"
        self._made_by = made_by()
        self._loaded = 0  # launches

    def load(self) -> bytes:
        """Adds what is kept; returns it."""
        effects = self._read()
        self._loaded = self._memo.count_for_others()
        return effects

    def _read(self) -> bytes:
        with suppress(OSError, msgspec.DecodeError, zlib.error):
            kept = msgspec.msgpack.decode(self._file.read_bytes(), type=EffectsFile)
            if kept.made_by == self._made_by:
                effects = zlib.decompressobj().decompress(kept.effects, FILE_BYTES_MAX)
                self._memo.load(effects)
                return effects
        return b""

    def keep(self) -> None:
        """Writes what is not kept yet, beside what others have kept by now: nothing where no launch
        came to those that were loaded.
        """
        if self._memo.count_for_others() == self._loaded:
            return
        with suppress(OSError):
            folder = os.open(self._file.parent, os.O_RDONLY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                self._add_own()
            finally:
                os.close(folder)

    def _add_own(self) -> None:
        """While no other engine of this environment does. Raises OSError in somebody else's."""
        before = self.load()
        effects = self._memo.dump_for_others()
        if effects == before or len(effects) > FILE_BYTES_MAX:
            return
        made = self._file.with_suffix(f".{os.getpid()}")
        kept = EffectsFile(self._made_by, zlib.compress(effects, 1))
        made.write_bytes(msgspec.msgpack.encode(kept))
        made.replace(self._file)


def made_by() -> str:
    """A digest of what interprets kernels: racegate's own code, and the packages that it is for."""
    digest = hashlib.sha256(platform.python_version().encode())
    for name in ("torch", "triton", "numpy", "ml_dtypes"):
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    for package in (racegate.interpose, racegate.order):
        files = (one for kind in ("*.py", "*.c", "*.h") for one in _root(package).rglob(kind))
        for path in sorted(files):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _root(package: ModuleType) -> Path:
    return Path(package.__path__[0])
