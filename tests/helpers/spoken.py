"""An engine that answers in this process in the place of an engine's process, and what may be done
to its lines before they are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from racegate.targets.adapters.errors import EngineLostError, LossKind
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.serve import AdapterEngine
from racegate.targets.adapters.wire import (
    HelloQuestion,
    Line,
    PlainQuestion,
    Question,
    RunQuestion,
    decode_question,
)

DIES: dict[str, Any] = {"is": "death"}
Lines = list[dict[str, Any]]
Lie = Callable[[Lines, Question], Lines]


def honest(lines: Lines, question: Question) -> Lines:
    """No lie."""
    return lines


def spoken(engine: AdapterEngine, question: Question) -> Lines:
    """What an honest engine says to a question, its answer last."""
    said: list[Line] = []
    match question:
        case HelloQuestion():
            answer: Any = engine.hello()
        case RunQuestion():
            answer = engine.run(question, said.append)
        case PlainQuestion():
            answer = engine.plain(question)
    said.append(msgspec.structs.replace(answer, to=question.id))
    lines: Lines = [msgspec.to_builtins(line) for line in said]
    return lines


class SpokenProcess:
    """Stands in for EngineProcess: `DIES` among the lines is its end."""

    def __init__(self, engine: AdapterEngine, lie: Lie) -> None:
        self._engine, self._lie = engine, lie
        self._lines: deque[dict[str, Any]] = deque()
        self.stderr: tuple[str, ...] = ()

    def send(self, line: bytes) -> None:
        question = decode_question(line)
        self._lines += self._lie(spoken(self._engine, question), question)

    def line(self, asked: float, within_s: float) -> bytes:
        if not self._lines:
            raise EngineLostError(LossKind.SILENT, "the engine says nothing", ())
        if self._lines[0] is DIES:
            raise EngineLostError(LossKind.EXITED, "the engine was killed by SIGKILL", ())
        return msgspec.json.encode(self._lines.popleft())

    def unasked(self) -> bytes | None:
        return None

    def close(self) -> None:
        self._lines.clear()


def speaking(engine: AdapterEngine, lie: Lie = honest) -> Callable[..., SpokenProcess]:
    """What is called as EngineProcess is."""

    def start(
        command: Sequence[str], *, limits: Limits, folder: Path | None = None
    ) -> SpokenProcess:
        return SpokenProcess(engine, lie)

    return start
