"""A debugger that stops where an operation that was held back lands: in the frame of the host that
goes on from there. Standard library alone, so that every environment can import it.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
import threading
from bdb import Bdb
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from pdb import Pdb
from types import FrameType
from typing import IO

_SKIPPED = ("racegate.*", "bdb", "contextlib", "threading")


class LandingStop(Pdb):
    """pdb, which goes on by itself where it is left: the run is a replay, and has to end.

    is_shown: whether a frame is one to stop in; skipped: modules that stepping passes over
    stdin, stdout: of the person, if they are not those of the process
    """

    def __init__(
        self,
        is_shown: Callable[[FrameType], bool],
        *,
        skipped: tuple[str, ...] = _SKIPPED,
        stdin: IO[str] | None = None,
        stdout: IO[str] | None = None,
    ) -> None:
        super().__init__(skip=skipped, stdin=stdin, stdout=stdout, nosigint=True)
        self._is_shown = is_shown
        self._goes_on = False

    def stop(self, label: str) -> None:
        """The operation has landed: stops in the innermost frame that is one to stop in."""
        frame = outer = sys._getframe(1)
        while outer.f_back is not None and not self._is_shown(outer):
            outer = outer.f_back
        frame = outer if self._is_shown(outer) else frame
        Bdb.set_trace(self, frame)
        sys.settrace(None)  # not in the debugger itself
        self._goes_on = False
        self.message(f"{label} has landed. Stack: w, u, d; values: p; one line more: n; on: c")
        self.interaction(frame, None)
        if self.breaks or not self._goes_on:
            sys.settrace(self.trace_dispatch)

    def set_continue(self) -> None:
        """See bdb."""
        self._goes_on = True
        super().set_continue()

    def set_quit(self) -> None:
        """Leaving the debugger does not end the run."""
        self.clear_all_breaks()
        self.set_continue()


def connected(place: str, is_shown: Callable[[FrameType], bool]) -> LandingStop:
    """In a process that has no terminal: one whose person is at the other end of a socket."""
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(place)
    return LandingStop(is_shown, stdin=peer.makefile("r"), stdout=peer.makefile("w"))


def stops_at(
    place: str, is_shown: Callable[[str], bool], own: Callable[[], AbstractContextManager[None]]
) -> Callable[[str], None]:
    """Stops at a landing. is_shown: by its file, whether a frame is; own: inside, what a person
    looks at is nobody's access
    """
    debugger = connected(place, lambda frame: is_shown(frame.f_code.co_filename))

    def stop(label: str) -> None:
        with own():
            debugger.stop(label)

    return stop


@contextmanager
def standard_streams() -> Iterator[str]:
    """Lends standard input and output to a debugger in another process; gives the place of the
    socket that it connects to. Nobody else has standard input meanwhile.
    """
    typed = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        with tempfile.TemporaryDirectory(prefix="racegate-") as folder:
            place = str(Path(folder, "debugger"))
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(place)
                listener.listen()
                threading.Thread(target=_serve, args=(listener, typed), daemon=True).start()
                yield place
    finally:
        os.dup2(typed, 0)
        os.close(typed)


def _serve(listener: socket.socket, typed: int) -> None:
    with suppress(OSError):  # closed: no run is left that could connect
        while True:
            peer, _ = listener.accept()
            with peer:
                _pass_on(peer, typed)


def _pass_on(peer: socket.socket, typed: int) -> None:
    """What the debugger says to standard output, and what is typed to the debugger."""
    sources: list[socket.socket | int] = [peer, typed]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if peer in ready:
            if not (said := peer.recv(1 << 16)):
                return
            os.write(1, said)
        if typed in ready:
            line = os.read(typed, 1 << 16)
            if line:
                peer.sendall(line)
            else:
                sources.remove(typed)
                peer.shutdown(socket.SHUT_WR)
