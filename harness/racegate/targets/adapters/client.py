"""An engine as racegate sees it: asked one question at a time, started again if it was lost."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from racegate.history.run import EngineResult, Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.trace import HoldOutcome
from racegate.scenario.spec import OwnScenario
from racegate.targets.adapters.answers import check_plain, check_ran
from racegate.targets.adapters.errors import AdapterError, EngineLostError, HugeLineError, said
from racegate.targets.adapters.process import EngineProcess, Limits
from racegate.targets.adapters.reader import HistoryError, HistoryReader, check_introduction
from racegate.targets.adapters.wire import (
    SCHEMA,
    Answer,
    HelloAnswer,
    HelloQuestion,
    HistoryLine,
    PlainAnswer,
    PlainQuestion,
    Plant,
    Question,
    RanAnswer,
    RefusedAnswer,
    RunQuestion,
    StoppedAnswer,
    decode_line,
    encode,
)

LINE_SHOWN = 160

ANSWERS: dict[type[Question], tuple[type[Answer], ...]] = {
    HelloQuestion: (HelloAnswer,),
    RunQuestion: (RanAnswer, StoppedAnswer, RefusedAnswer),
    PlainQuestion: (PlainAnswer, RefusedAnswer),
}


class EngineStoppedError(Exception):
    """The engine stopped on an error of its own, and said so."""

    def __init__(self, answer: StoppedAnswer) -> None:
        super().__init__(f"{answer.error}: {answer.message}")
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRun:
    """One run as an engine told it.

    run: its `stopped` is EngineStoppedError or EngineLostError, if it did not come to its end
    owners_seen: rows of which it said whose value they had
    digest: of all that it said, in the order in which it said it
    """

    run: Run
    owners_seen: int
    digest: str


class Adapter:
    """A foreign engine. Use it as a context: it is ended behind it.

    command: what starts its adapter; folder: where
    Raises CommandError if it cannot be started, AdapterError if what it says cannot be believed.
    """

    def __init__(
        self, command: Sequence[str], *, limits: Limits | None = None, folder: Path | None = None
    ) -> None:
        self._command = command
        self._limits = Limits() if limits is None else limits
        self._folder = folder
        self._asked = 0
        self._process: EngineProcess | None = None
        self._hello: HelloAnswer | None = None

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: object) -> None:
        self.restart()

    def restart(self) -> None:
        """Ends the process; the next question starts another one."""
        if self._process is not None:
            self._process.close()
            self._process = None

    @property
    def hello(self) -> HelloAnswer:
        """The introduction of the engine, which is started for it."""
        self._started()
        assert self._hello is not None
        return self._hello

    def run(
        self,
        scenario: OwnScenario,
        *,
        schedule: Schedule = EAGER,
        plant: Plant | None = None,
        device: str | None = None,
    ) -> AdapterRun | RefusedAnswer:
        """One run of a scenario. Raises AdapterError."""
        hello = self.hello
        self._asked += 1
        question = RunQuestion(
            id=self._asked,
            scenario=scenario,
            device=hello.devices[0] if device is None else device,
            holds=schedule.texts(),
            plant=plant,
        )
        reader = HistoryReader(hello, scenario)
        digest = hashlib.sha256()

        def take(line: HistoryLine) -> None:
            reader.take(line)
            digest.update(encode(line))

        started = time.perf_counter()
        result: EngineResult | None = None
        stopped: Exception | None = None
        holds: tuple[HoldOutcome, ...] = ()
        try:
            answer = self._answered(question, take)
        except EngineLostError as error:
            stopped = error
        else:
            if isinstance(answer, RefusedAnswer):
                return answer
            digest.update(encode(msgspec.structs.replace(answer, to=0)))
            if isinstance(answer, StoppedAnswer):
                stopped = EngineStoppedError(answer)
            else:
                assert isinstance(answer, RanAnswer)
                with self._believing():
                    check_ran(question, answer, reader)
                result, holds = _result(answer), answer.holds
        if result is not None:
            stopped = self._lost_since()
        run = Run(
            trace=reader.trace(holds),
            observations=reader.observations(),
            edges=hello.edges,
            result=result,
            stopped=stopped,
            seconds=time.perf_counter() - started,
        )
        return AdapterRun(run=run, owners_seen=reader.owners_seen, digest=digest.hexdigest())

    def plain(self, scenario: OwnScenario) -> dict[str, tuple[int, ...]] | RefusedAnswer:
        """Request -> tokens of plain decoding. Raises AdapterError."""
        self._started()
        self._asked += 1
        question = PlainQuestion(id=self._asked, scenario=scenario)
        answer = self._answered_or_lost(question)
        if isinstance(answer, RefusedAnswer):
            return answer
        assert isinstance(answer, PlainAnswer)
        with self._believing():
            check_plain(scenario, answer.tokens)
        return answer.tokens

    def _started(self) -> None:
        if self._process is not None:
            return
        self._process = EngineProcess(self._command, limits=self._limits, folder=self._folder)
        try:
            hello = self._introduced(self._limits.start_s)
        except EngineLostError as error:
            raise self._error(f"asked 'hello': {error}") from error
        with self._believing("its introduction: "):
            check_introduction(hello)
        if self._hello not in (None, hello):
            raise self._error("started again, it introduces itself differently")
        self._hello = hello

    def _introduced(self, within_s: float) -> HelloAnswer:
        """Its introduction, without a number. Raises EngineLostError."""
        self._asked += 1
        hello = self._answered(HelloQuestion(id=self._asked, schema=SCHEMA), within_s=within_s)
        assert isinstance(hello, HelloAnswer)
        if hello.schema != SCHEMA:
            raise self._error(f"it speaks {hello.schema!r}, this racegate {SCHEMA!r}")
        return msgspec.structs.replace(hello, to=0)

    def _lost_since(self) -> EngineLostError | None:
        """How the engine was lost behind its answer, if it was: who is alive introduces itself, and
        says nothing of the run any more. A question cannot tell one from the other by waiting.
        """
        try:
            hello = self._introduced(self._limits.timeout_s)
        except EngineLostError as error:
            return error
        if hello != self._hello:
            raise self._error("asked again, it introduces itself differently")
        return None

    @contextmanager
    def _believing(self, what: str = "") -> Iterator[None]:
        """What speaks against something that the engine said is an AdapterError. what: it was"""
        try:
            yield
        except HistoryError as error:
            raise self._error(f"{what}{error}") from error

    def _answered_or_lost(self, question: Question) -> Answer:
        """The answer to a question in which nothing of the engine runs asynchronously: that the
        process is lost at it says nothing about a race.
        """
        try:
            return self._answered(question)
        except EngineLostError as error:
            raise self._error(f"asked {_tag(question)!r}: {error}") from error

    def _answered(
        self,
        question: Question,
        take: Callable[[HistoryLine], None] | None = None,
        *,
        within_s: float | None = None,
    ) -> Answer:
        """The answer to a question, of a type that fits it; what comes before it is taken."""
        process = self._process
        assert process is not None
        if unasked := process.unasked():
            raise self._error(f"it says {_shown(unasked)} although nothing was asked")
        process.send(encode(question))
        asked = time.monotonic()
        within_s = self._limits.timeout_s if within_s is None else within_s
        try:
            for number in range(1, self._limits.lines + 1):
                line = self._decoded(process.line(asked, within_s), number)
                if not isinstance(line, Answer):
                    self._taken(line, number, take)
                elif line.to != question.id:
                    raise self._error(
                        f"line {number} answers question {line.to}, asked was {question.id}"
                    )
                elif not isinstance(line, ANSWERS[type(question)]):
                    raise self._error(f"line {number} is no answer to {_tag(question)!r}")
                else:
                    return line
        except EngineLostError:
            self.restart()
            raise
        except HugeLineError as error:
            raise self._error(f"it writes {error}") from error
        raise self._error(f"more than {self._limits.lines} lines for one question")

    def _decoded(self, text: bytes, number: int) -> HistoryLine | Answer:
        try:
            return decode_line(text)
        except msgspec.ValidationError as error:
            raise self._error(f"line {number} is {_shown(text)}: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(
                f"line {number} is {_shown(text)}: {error}. Standard output is for the protocol "
                "only: let the engine print to standard error"
            ) from error

    def _taken(
        self, line: HistoryLine, number: int, take: Callable[[HistoryLine], None] | None
    ) -> None:
        if take is None:
            raise self._error(f"line {number} is of a history, and none was asked for")
        try:
            take(line)
        except (HistoryError, msgspec.DecodeError, RecursionError) as error:
            raise self._error(f"line {number} ({_shown(encode(line))}): {error}") from error

    def _error(self, what: str) -> AdapterError:
        """What it says is not to be believed; nor what it would say next."""
        stderr = () if self._process is None else self._process.stderr
        self.restart()
        return AdapterError(f"the engine {' '.join(self._command)}: {what}; {said(stderr)}")


def _result(answer: RanAnswer) -> EngineResult:
    return EngineResult(
        delivered=answer.delivered,
        finished=answer.finished,
        steps=answer.steps,
        counters=answer.counters,
        unmet_events=answer.unmet_events,
    )


def _shown(text: bytes) -> str:
    shown = text[:LINE_SHOWN].decode(errors="replace").strip()
    return repr(shown) + ("..." if len(text) > LINE_SHOWN else "")


def _tag(message: msgspec.Struct) -> object:
    return message.__struct_config__.tag
