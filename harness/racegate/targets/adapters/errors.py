"""What can go wrong with a foreign engine, apart from what it does wrong in a run."""

from __future__ import annotations

from enum import StrEnum

from racegate.scenario.errors import BadInputError, BrokenHarnessError


class CommandError(BadInputError):
    """An engine's command that cannot be started."""


class AdapterError(BrokenHarnessError):
    """What an engine says cannot be believed, so that nothing is judged: names the engine, the
    line, and what is wrong with it.
    """


class HugeLineError(Exception):
    """A line that is longer than it may be: says how it begins."""


class LossKind(StrEnum):
    """How an engine's process was lost.

    EXITED: it ended by itself; SILENT: it had not answered when its time was up, and was ended;
    MEMORY: it, with its children, held more than it may, and was ended
    """

    EXITED = "exited"
    SILENT = "silent"
    MEMORY = "memory"


class EngineLostError(Exception):
    """The engine's process is gone before it answered. The message has its last stderr lines.

    why: the same without them
    """

    def __init__(self, kind: LossKind, why: str, stderr: tuple[str, ...]) -> None:
        super().__init__(f"{why}; {said(stderr)}")
        self.kind = kind
        self.why = why
        self.stderr = stderr


def said(stderr: tuple[str, ...]) -> str:
    """The last lines of an engine's standard error, in words."""
    if not stderr:
        return "it wrote nothing to standard error"
    return "its standard error ends with:\n" + "\n".join(f"  {line}" for line in stderr)
