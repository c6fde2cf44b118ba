"""The run that this process is part of: where the program's own calls find it.

The one piece of state that belongs to the process: a script calls `observe` without being handed
anything. The child process sets it before the script starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from racegate.history.finding import Race
from racegate.interpose.outcome import Observation

if TYPE_CHECKING:
    from racegate.interpose.kernels.declared.copies import Moves


@dataclass(slots=True)
class ProgramRun:
    """What a program can reach of its run.

    findings: those found so far; read: the bytes of a value and how to show them
    declare: an operator that only copies (schema, moves, reads, any_order)
    suppressed: signatures that tests pass over
    """

    findings: Callable[[], list[Race]]
    read: Callable[[object], tuple[bytes, str]]
    declare: Callable[[str, Callable[..., Moves], tuple[str, ...], str], None]
    observations: list[Observation] = field(default_factory=list)
    suppressed: frozenset[str] = frozenset()

    def observe(self, name: str, value: object) -> None:
        self.observations.append(self._seen(name, value))

    def agree(self, name: str, value: object) -> None:
        """As `observe`, of what all ranks are to have."""
        seen = self._seen(name, value)
        self.observations.append(msgspec.structs.replace(seen, is_agreed=True))

    def _seen(self, name: str, value: object) -> Observation:
        data, preview = self.read(value)
        digest = hashlib.sha256(data).hexdigest()[:16]
        return Observation(name, digest, preview[:120])


_RUNS: list[ProgramRun] = []


def set_run(run: ProgramRun) -> None:
    """The child process begins its run."""
    _RUNS[:] = [run]


def get_run() -> ProgramRun | None:
    """The run of this process, None outside of `python -m racegate.interpose`."""
    return _RUNS[0] if _RUNS else None
