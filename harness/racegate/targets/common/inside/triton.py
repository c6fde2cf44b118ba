"""Triton in the environment of an engine: without a compiler for CPUs, which some have, and with
what its kernels did in other engines.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import time
from types import ModuleType
from typing import Any

import msgspec

import racegate.interpose
import racegate.order
from racegate.interpose.kernels.interpreted.driver import VirtualDriver
from racegate.interpose.kernels.kept.memo import Memo
from racegate.targets.common.inside.listener import EngineListener

FILE = "racegate_kernels"  # in the environment, so that it goes with it; one for each cell
FILE_BYTES_MAX = 1 << 26
UNUSED_S = 7 * 86400.0
_LENGTH_BYTES = 4  # that a record begins with
_ADDRESSES = 1 << 32  # numbers of that size may be some, and those are others in each run


def answer_for_triton() -> None:
    """Triton asks its driver for a target and sizes, also where kernels are interpreted."""
    from triton.backends import backends
    from triton.runtime.driver import driver

    backends.pop("cpu", None)
    driver.set_active(VirtualDriver())


def note_settings(listener: EngineListener) -> None:
    """Of each launch the numbers and flags are noted that it is given beside its tensors. Where one
    has no effect on what is computed here, it may have one elsewhere: a temperature that is applied
    twice leaves a likely token likely.
    """
    from triton.runtime import interpreter

    executor: Any = interpreter.GridExecutor
    call = executor.__call__

    def noted(launch: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*zip(launch.arg_names, args, strict=False), *kwargs.items())
        told = ((name, getattr(value, "value", value)) for name, value in given)
        settings = tuple((name, value) for name, value in told if _is_setting(value))
        listener.note_settings(getattr(launch.fn, "__name__", "?"), settings)
        return call(launch, *args, **kwargs)

    executor.__call__ = noted


def _is_setting(value: object) -> bool:
    """A number or flag that is no address."""
    is_told = value is None or isinstance(value, (bool, int, float, str))
    return is_told and not (isinstance(value, int) and abs(value) >= _ADDRESSES)


class KeptEffects:
    """The effects of a memo, kept in a folder while engines run: what one of them adds, others of
    its cell take over, also those that run beside it. The file is a log of records, each of them
    the length of what follows, compressed. One that is not to be read is as good as none; what
    other packages made has another name. settings: of the engine's cell; with others it launches
    others
    """

    def __init__(
        self, memo: Memo, settings: Sequence[str], folder: Path = Path(sys.prefix)
    ) -> None:
        self._memo = memo
        cell = hashlib.sha256(repr(tuple(map(str, settings))).encode()).hexdigest()[:12]
        self._file = folder / f"{FILE}.{cell}.{made_by()[:12]}"
        self._every = f"{FILE}.{cell}*"
        self._known_bytes = 0  # of the file

    def load(self) -> None:
        """When an engine starts: what is kept. What other packages have made is removed, if nothing
        was added to it for long.
        """
        with suppress(OSError), self._alone():
            for file in self._file.parent.glob(self._every):
                if file != self._file and file.stat().st_mtime < time() - UNUSED_S:
                    file.unlink()
            self._take()

    def share(self, effects: bytes) -> None:
        """What others have added since is taken over, and of the effects that a memo has dumped
        those are added that are new beside it.
        """
        with suppress(OSError), self._alone():
            self._take()
            new = self._memo.new_for_others(effects)
            record = zlib.compress(msgspec.msgpack.encode(new), 1)
            if new and self._known_bytes + len(record) <= FILE_BYTES_MAX:
                self._add(len(record).to_bytes(_LENGTH_BYTES, "little") + record)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other engine of this environment reads or writes. Raises OSError if it cannot be."""
        folder = os.open(self._file.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _take(self) -> None:
        """The records behind those that are known. A last one that is not whole is none: whoever
        wrote it was killed.
        """
        size = self._file.stat().st_size if self._file.exists() else 0
        if size < self._known_bytes:
            self._known_bytes = 0  # it is another file
        if size == self._known_bytes:
            return
        with self._file.open("rb") as file:
            file.seek(self._known_bytes)
            while len(length := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
                record = file.read(int.from_bytes(length, "little"))
                try:
                    self._memo.load(zlib.decompress(record))
                except (zlib.error, msgspec.DecodeError):
                    break
                self._known_bytes = file.tell()

    def _add(self, record: bytes) -> None:
        """Behind what is known."""
        with self._file.open("ab") as file:
            file.truncate(self._known_bytes)
            file.write(record)
        self._known_bytes += len(record)


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
