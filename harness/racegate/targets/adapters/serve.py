"""The engine's side of the protocol, for adapters that have racegate at hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import BinaryIO, Protocol

import msgspec

from racegate.targets.adapters.wire import (
    Answer,
    HelloAnswer,
    HelloQuestion,
    HistoryLine,
    PlainAnswer,
    PlainQuestion,
    RanAnswer,
    RefusedAnswer,
    RunQuestion,
    StoppedAnswer,
    decode_question,
    encode,
)

Say = Callable[[HistoryLine], None]


class AdapterEngine(Protocol):
    """What is served. `to` of its answers is filled in for it."""

    def hello(self) -> HelloAnswer:
        """What it is and offers."""
        ...

    def run(self, question: RunQuestion, say: Say) -> RanAnswer | StoppedAnswer | RefusedAnswer:
        """Runs a scenario, and says what happens while it does."""
        ...

    def plain(self, question: PlainQuestion) -> PlainAnswer | RefusedAnswer:
        """Decodes a scenario plainly."""
        ...


def serve(engine: AdapterEngine) -> None:
    """Answers questions until there are no more. What the engine prints goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        answer_all(engine, sys.stdin.buffer, out)


def answer_all(engine: AdapterEngine, questions: BinaryIO, out: BinaryIO) -> None:
    """The loop of `serve` on given streams."""

    def say(line: HistoryLine) -> None:
        out.write(encode(line))

    for text in questions:
        question = decode_question(text)
        match question:
            case HelloQuestion():
                answer: Answer = engine.hello()
            case RunQuestion():
                answer = engine.run(question, say)
            case PlainQuestion():
                answer = engine.plain(question)
        out.write(encode(msgspec.structs.replace(answer, to=question.id)))
        out.flush()
