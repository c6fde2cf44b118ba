"""Standard input of a program that is run many times: each run reads it from its beginning."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class StandardInput:
    """file: what the device gets as standard input; copy: a file that holds what the first run had
    from a pipe, empty if there is none.
    """

    file: int | IO[bytes]
    copy: str = ""


@contextmanager
def open_stdin() -> Iterator[StandardInput]:
    """A pipe is copied while the first run reads it; a file is read again. A terminal is not passed
    on: the device is no foreground process, which may not read from one.
    """
    mode = _mode()
    if mode is None or os.isatty(0):
        yield StandardInput(subprocess.DEVNULL)
    elif not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        yield StandardInput(0)  # a worker process has closed `sys.stdin`, and has another one
    else:
        with tempfile.TemporaryDirectory(prefix="racegate-") as folder:
            copy = Path(folder) / "stdin"
            copy.touch()
            command = ["tee", str(copy)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as tee:
                try:
                    assert tee.stdout is not None
                    yield StandardInput(tee.stdout, str(copy))
                finally:
                    tee.kill()


def _mode() -> int | None:
    """Of standard input, None if it is closed."""
    try:
        return os.fstat(0).st_mode
    except OSError:
        return None


class RewoundInput:
    """In the process of the device: standard input for one run after another."""

    def __init__(self, copy: str) -> None:
        self._copy = copy
        self._start = os.lseek(0, 0, os.SEEK_CUR) if _is_file() else None
        self._is_first = True

    def rewind(self) -> None:
        """Before a run is forked."""
        if self._start is not None:
            os.lseek(0, self._start, os.SEEK_SET)
        elif self._copy and not self._is_first:
            again = os.open(self._copy, os.O_RDONLY)
            os.dup2(again, 0)
            os.close(again)
        self._is_first = False


def _is_file() -> bool:
    mode = _mode()
    return mode is not None and stat.S_ISREG(mode)
