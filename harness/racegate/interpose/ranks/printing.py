"""What ranks print: line by line, each with the rank in front, as if they printed in turn."""

from __future__ import annotations

import os
from collections.abc import Sequence

_ROOM = 1 << 16


class PrefixedOutput:
    """Standard output and standard error of a process that is about to be forked. ends: what is
    read of it
    """

    def __init__(self, prefix: str, *, is_quiet: bool) -> None:
        self._prefix = prefix.encode()
        self._pipes: dict[int, tuple[int, int]] = {}  # by the end that is read: written, goes to
        self._begun: dict[int, bytes] = {}
        if not is_quiet:
            for to in (1, 2):
                read, write = os.pipe()
                self._pipes[read] = (write, to)
                self._begun[read] = b""

    @property
    def ends(self) -> list[int]:
        return list(self._pipes)

    @property
    def is_open(self) -> bool:
        """Whether something may yet be printed."""
        return bool(self._pipes)

    def take_over(self) -> None:
        """In the process that prints."""
        for read, (write, to) in self._pipes.items():
            os.dup2(write, to)
            os.close(write)
            os.close(read)

    def let_go(self) -> None:
        """In the process that passes it on."""
        for write, _ in self._pipes.values():
            os.close(write)

    def pass_on(self, ready: Sequence[int]) -> None:
        """Prints whole lines of what can be read."""
        for read in self._pipes.keys() & set(ready):
            data = os.read(read, _ROOM)
            *lines, rest = (self._begun[read] + data).split(b"\n")
            self._begun[read] = rest
            if not data and rest:
                lines.append(rest)
            if lines:
                text = b"".join(self._prefix + line + b"\n" for line in lines)
                _write(self._pipes[read][1], text)
            if not data:
                self._end(read)

    def close(self) -> None:
        """What is not printed yet is lost."""
        for read in list(self._pipes):
            self._end(read)

    def _end(self, read: int) -> None:
        os.close(read)
        del self._pipes[read]


def _write(to: int, text: bytes) -> None:
    while text:
        text = text[os.write(to, text) :]
