"""Breakage: something that the harness did not expect of itself, as data: what, where, and the line
that shows it again. A run in which there is one says nothing, whatever else was seen in it.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

import msgspec

from racegate.scenario.errors import BadInputError

# Of a message that came from elsewhere.
MESSAGE_LENGTH_MAX = 500
PACKAGES = ("racegate", "racegate_reference", "racegate_kernels")


class Breakage(msgspec.Struct, frozen=True, kw_only=True):
    """One error that nobody had in mind.

    at: what was being done; error: its type and message; place: the innermost line of ours that it
        came through; command: what shows it again, empty if nobody knows
    """

    at: str
    error: str
    place: str = ""
    command: str = ""

    @property
    def text(self) -> str:
        """One paragraph."""
        where = f" ({self.place})" if self.place else ""
        again = f"; again: {self.command}" if self.command else ""
        return f"{self.at}: {self.error}{where}. This is no finding: nothing is known of it{again}"


def breakage_of(error: BaseException, *, at: str, command: str = "") -> Breakage:
    """What an error says."""
    message = str(error)[:MESSAGE_LENGTH_MAX]
    kind = type(error).__name__
    return Breakage(
        at=at,
        error=f"{kind}: {message}" if message else kind,
        place=_place_of(error.__traceback__),
        command=command,
    )


def _place_of(trace: TracebackType | None) -> str:
    """The last line of our packages that an error went through, else the last of all."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    ours = [pair for pair in lines if set(PACKAGES) & set(Path(pair[0]).parts)]
    if not lines:
        return ""
    file, line = (ours or lines)[-1]
    return f"{'/'.join(Path(file).parts[-2:])}:{line}"


class Caught:
    """A context that keeps an error of the harness in place of raising it.

    at, command: see Breakage; through: errors that somebody else takes care of
    breakage: what was caught, None if nothing was
    """

    def __init__(
        self,
        at: str,
        *,
        command: str = "",
        through: tuple[type[Exception], ...] = (BadInputError,),
    ) -> None:
        self._at = at
        self._command = command
        self._through = through
        self.breakage: Breakage | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, self._through):
            return False
        self.breakage = breakage_of(error, at=self._at, command=self._command)
        return True
