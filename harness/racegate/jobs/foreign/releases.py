"""Releases of vLLM and SGLang: how each is set up, opened, and witnessed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Condition
from types import TracebackType
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from racegate.interpose.outcome import Sources
from racegate.jobs.stores.witnesses import Reader
from racegate.scenario.errors import BadInputError, BrokenHarnessError
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell, Runs
from racegate.targets.common.client import RUN_S, Engine
from racegate.targets.common.environment import EnginePackage
from racegate.targets.common.judge import ReleaseVerdict, lost_verdict
from racegate.targets.common.sensitivity import Sensitivity
from racegate.targets.common.server import ServerLost
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.engine import WithPlain, open_scheduler
from racegate.targets.sglang.environment import SGLANG
from racegate.targets.sglang.witness import SGLANG_WITNESSES, SchedulerWitness
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import open_cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.witness import VLLM_WITNESSES, EngineWitness

ReleaseCell: TypeAlias = Cell | SchedulerCell


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine that is started. cell: which one; runs: what is judged
    engine: whose runs they are; sensitivity: whether a planted wrong value changes each
    observation, measured when it is first asked
    siblings: the same engine, to be asked beside it
    """

    cell: EngineCell
    runs: Runs
    engine: Engine
    sensitivity: Callable[[], Sensitivity]
    siblings: tuple[OpenedEngine, ...] = ()


WORKERS = 4  # at most, if nobody says how many: what one has learnt another has not
Opens = Callable[[], AbstractContextManager[OpenedEngine]]
Judge = Callable[[OpenedEngine, Scenario], ReleaseVerdict]
Given = TypeVar("Given")
Found = TypeVar("Found")


class InOrder(Protocol):
    """As `map`."""

    def __call__(
        self, judge: Callable[[Given], Found], given: Iterable[Given], /
    ) -> Iterator[Found]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKind:
    """An engine that has releases. packaging: how they are set up; witness, reader: of those that
    are found in them
    """

    packaging: EnginePackage
    witness: type[ReleaseWitness]
    reader: Reader


OF_VLLM = ReleaseKind(packaging=VLLM, witness=EngineWitness, reader=VLLM_WITNESSES)
OF_SGLANG = ReleaseKind(packaging=SGLANG, witness=SchedulerWitness, reader=SGLANG_WITNESSES)


def kind_of(cell: EngineCell) -> ReleaseKind:
    """Whose release a cell is of."""
    return OF_VLLM if isinstance(cell, Cell) else OF_SGLANG


@contextmanager
def open_release(
    cell: EngineCell,
    *,
    log: Path | None = None,
    run_s: float = RUN_S,
    sources: Sources = (),
    count: int = 1,
) -> Iterator[OpenedEngine]:
    """Starts the engine of a cell on the virtual device. Raises BadInput if it is not set up or
    does not start.

    log: where what it prints goes, if not to standard error; run_s: seconds that one run may take
    sources: texts that it reads in the place of its files; count: of it and its siblings
    """
    if isinstance(cell, Cell):
        with open_cell(cell, log=log, run_s=run_s, sources=sources, count=count) as engine:
            # Of the engine, not of a scenario: six runs, once.
            sensitivity = cache(partial(sensitivity_of, engine))
            yield _opened(cell, engine, lambda runs: runs, sensitivity)
        return
    assert isinstance(cell, SchedulerCell)
    environment = SGLANG.environment_of(cell.release, checkout=cell.checkout)
    opened = open_scheduler(environment, cell, log=log, run_s=run_s, sources=sources, count=count)
    with opened as engine:
        yield _opened(cell, engine, WithPlain, dict)


def _opened(
    cell: EngineCell,
    engine: Engine,
    judged: Callable[[Engine], Runs],
    sensitivity: Callable[[], Sensitivity],
) -> OpenedEngine:
    """With its siblings, whose sensitivity is its own. judged: what is judged of an engine"""
    siblings = tuple(OpenedEngine(cell, judged(one), one, sensitivity) for one in engine.siblings)
    return OpenedEngine(cell, judged(engine), engine, sensitivity, siblings)


class StoppedEngineError(Exception):
    """The engine was ended by who has asked for it."""


class ReopenedEngine:
    """An engine that is started when it is first needed, and anew when its process is gone, so that
    the rest is judged too. Threads may ask it beside each other: each has it, or one of its
    siblings, for a scenario.

    cell: which engine; opened: starts it; judge: of one scenario on it
    """

    def __init__(self, cell: ReleaseCell, opened: Opens, judge: Judge) -> None:
        self.cell = cell
        self._opened = opened
        self._judge = judge
        self._stack = ExitStack()
        self._engine: OpenedEngine | None = None
        self._free: list[OpenedEngine] = []
        self._busy = 0
        self._changed = Condition()  # of all of these
        self._failure: BaseException | None = None
        self._was_lost = False

    def __enter__(self) -> ReopenedEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._failure = StoppedEngineError("the engine is not needed any more")
        self._stack.__exit__(kind, error, trace)

    def opened(self) -> OpenedEngine:
        """The engine, started if it is not. Raises BadInputError if that fails."""
        with self._changed:
            return self._start()

    def judge(self, scenario: Scenario) -> ReleaseVerdict:
        """One scenario; where the engine is lost in it, or does not start anew, a verdict that says
        so. Raises BadInputError or BrokenHarnessError if it does not start at all.

        A sibling that is lost may have been so with the engine, which another scenario ended: what
        it judged is judged again.
        """
        for is_last in (False, True):
            engine: OpenedEngine | None = None
            try:
                engine = self._take()
                verdict = self._judge(engine, scenario)
            except BaseException as error:
                is_told = isinstance(error, BadInputError | BrokenHarnessError)
                if not (is_told and (self._was_lost or isinstance(error, ServerLost))):
                    self._lose(engine, error)  # nobody waits for it
                    raise
                self._was_lost = True
                was_sibling = engine is not None and engine is not self._engine
                self._lose(engine)
                if is_last or not was_sibling:
                    return lost_verdict(self.cell, scenario, str(error))
            else:
                self._give_back(engine)
                return verdict
        raise AssertionError("the last turn returns or raises")

    def _take(self) -> OpenedEngine:
        """The engine or a sibling that nobody has, once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._free or not self._busy)
            if not self._free:
                engine = self._start()
                engine.sensitivity()  # by its first run, while nobody else asks it
                self._free = [*engine.siblings, engine]
            self._busy += 1
            return self._free.pop()

    def _start(self) -> OpenedEngine:
        """While nobody has it."""
        if self._failure is not None:
            raise self._failure
        if self._engine is None:
            self._engine = self._stack.enter_context(self._opened())
            if self._failure is not None:  # it was stopped while it started
                self._stack.close()
                raise self._failure
        return self._engine

    def _give_back(self, engine: OpenedEngine) -> None:
        with self._changed:
            self._busy -= 1
            self._free.append(engine)
            self._changed.notify_all()

    def _lose(self, engine: OpenedEngine | None, failure: BaseException | None = None) -> None:
        """Nobody has it any more; when that is so of its siblings too, another one is started.
        failure: why none is
        """
        with self._changed:
            self._busy -= engine is not None
            self._failure = self._failure or failure
            if not (self._busy or self._free or self._failure):
                self._engine = None
                self._stack.close()
            self._changed.notify_all()


def workers_of(asked: int | None) -> int:
    """How many engines judge at a time. asked: by who starts them, if they have"""
    return asked or min(len(os.sched_getaffinity(0)), WORKERS)


@contextmanager
def in_threads(count: int, *decoded: type) -> Iterator[InOrder]:
    """As `map`, by so many threads, with what comes of it in order; what has not begun when they
    are not needed any more never does. One is this thread. decoded: types that they decode: msgspec
    looks at a type when it is first needed, and (0.22) two threads that do so at once end in a
    segmentation fault
    """
    for kind in decoded:
        msgspec.json.Decoder(kind)
    if count == 1:
        yield map
        return
    threads = ThreadPoolExecutor(count)
    try:
        yield threads.map
    finally:
        threads.shutdown(cancel_futures=True)
