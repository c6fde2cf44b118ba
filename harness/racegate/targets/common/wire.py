"""What the launcher and the process of an engine say to each other: one task at a time, as JSON."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

from racegate.history.schedule import Hold
from racegate.interpose.outcome import Ending, Observation, Outcome, Plan
from racegate.scenario.spec import Scenario
from racegate.scenario.strict import StrictStruct

DRAFTED_BEHIND = 4  # tokens behind a request's last that its last round may accept
PENALISED = "penalised logits"  # a counter: nothing of a scenario's `expect` has its name
TEMPERATURE_ONE = 1.0  # of requests that are sampled of their likeliest tokens, without penalties
UNPENALISED = 100  # seeds from which on a request has no penalties: nothing else follows its row
KEPT = "kept"  # the first word of observations by field, of which two versions may have others
NOT_EDITED = "cannot be edited there while it runs"
SOURCES = "sources.json"  # in the engine's folder: texts that it reads in the place of its files
FAILED = "failed.txt"  # in the engine's folder: why it did not start


class Fidelity(StrEnum):
    """HOLLOW: the model is scripted, nothing is computed. FULL: the target computes what it says;
    only its drafter is scripted, after plain decoding
    """

    HOLLOW = "hollow"
    FULL = "full"


class Observed(StrEnum):
    """What is observed at boundaries, and can be planted wrong."""

    ACCEPTED = "accepted counts"
    LENGTHS = "lengths"
    SLOTS = "state slots"
    ZEROED = "blocks to zero"
    TOKENS = "tokens"


class RunMode(StrEnum):
    """How far a run goes, and what is kept of it. The values stand in the protocol.

    WHOLE: to its end
    PLAIN: to its end, and nothing is drafted in it
    BASELINE: to its end without holds, and its state before each turn is kept
    CONVERGING: until its state before a turn is that of the baseline run, which tells the rest
    """

    WHOLE = "whole"
    PLAIN = "plain"
    BASELINE = "guide"
    CONVERGING = "joining"


# Operations are counted as in a run that holds something, and nothing has this name.
NOTHING_HELD = Plan(holds=(Hold(op="nothing"),), is_recording=False)


class SourceEdit(msgspec.Struct, frozen=True):
    """Another text in the source of a module that the engine has imported, for one run.

    start, end: bytes of the file that it takes the place of
    """

    module: str
    start: int
    end: int
    text: str


class SourceProbe(msgspec.Struct, frozen=True):
    """An expression of a module, and others that are evaluated beside it for one run.

    start, end: bytes of the file; others: on one line each
    is_test: only whether it is true decides anything
    """

    module: str
    start: int
    end: int
    others: tuple[str, ...]
    is_test: bool

    def put_into(self, source: bytes, called: str, first: int) -> bytes:
        """The source, with as many lines as before. called: the name of what is called in the place
        of the expression, with the number of the first other and functions of it and of the others
        """
        own = source[self.start : self.end].decode()
        given = ", ".join(f"lambda: ({each})" for each in (own, *self.others))
        call = f"{called}({first}, {given}, is_test={self.is_test})"
        return source[: self.start] + call.encode() + source[self.end :]


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with the engine's own source in a run.

    edit: what it is before the run; traces: the lines of it that run are told
    probes: of other expressions that are evaluated, which have the same value is told
    """

    edit: SourceEdit | None = None
    traces: bool = False
    probes: tuple[SourceProbe, ...] = ()


AS_IT_IS = SourceOptions()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Run this scenario under this plan, and write what came of it there.

    plant: what is made wrong behind the runner's back, in one step
    spoils: likewise, a pattern of the names of tensors that are, or what the scheduler tells of the
        step; empty for none
    turn: of the engine's loop; before it the run is as one in which nothing is held
    plain: what the model says in plain decoding, by request, if it computes that
    lands: the run, which holds one operation as long as it can, is forked at each gap that it comes
        to but the first, and lands it there: what comes of that is written beside the result
    sources: what is done with the engine's own
    """

    scenario: Scenario
    plan: Plan
    result: str
    plant: Observed | None = None
    spoils: str = ""
    turn: int = 0
    run_mode: RunMode = msgspec.field(default=RunMode.WHOLE, name="course")
    plain: dict[str, tuple[int, ...]] = {}
    lands: bool = False
    sources: SourceOptions = AS_IT_IS


# A number, or several: token ids, blocks, names of requests.
WrongValue = int | float | str | list[int | float | str]


class Wrong(StrictStruct, frozen=True, kw_only=True):
    """A value of the engine that is not the true one. what: in words, with request and row"""

    step: int
    what: str
    used: WrongValue
    true: WrongValue


class ReleaseRun(Outcome, frozen=True, kw_only=True):
    """One run of a release: what the interposer saw, with the engine's own side of it.

    observations: those at the engine's boundaries
    inner: where nothing was held, all observations in their order, also of values that legal
        schedules change; two versions of an engine are compared by them
    delivered, plain: tokens by request, and those of plain decoding
    wrong: values that are not true by themselves, whatever the schedule
    untrue: where nothing was held, values that are not what the scenario makes true, also of values
        that legal schedules change
    compared: how many values of each observed field were compared with what is true
    counters: what was exercised, by the names of a scenario's `expect`
    gaps: per held operation, the accesses to its bytes that came while it was held
    turns: of a recorded run: the turn of the engine's loop in which an operation that races is
        issued
    has_converged: it ended where its state was that of the baseline run, and only its outcome's
        holds, gaps and cpu_s are its own
    cpu_s: CPU time of the run's own process, and of the one from which it was forked, for it
    lines: of the engine's sources, by path below the folder of its package: what ran, if asked
    alike: numbers of the other expressions that had the same value wherever the run came by
    """

    steps: int = 0
    inner: tuple[Observation, ...] = ()
    delivered: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    plain: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    wrong: tuple[Wrong, ...] = ()
    untrue: tuple[Wrong, ...] = ()
    compared: dict[str, int] = msgspec.field(default_factory=dict)
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    gaps: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    turns: dict[str, int] = msgspec.field(default_factory=dict)
    has_converged: bool = msgspec.field(default=False, name="has_joined")
    cpu_s: float = 0.0
    lines: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    alike: tuple[int, ...] = ()

    @property
    def seen(self) -> tuple[object, ...]:
        """What must be the same under every schedule."""
        return (super().seen, self.delivered, self.wrong)

    @property
    def is_decided(self) -> bool:
        """Whether it came to an end of its own. Others say something about this tool or this
        machine, and nothing about the engine.
        """
        return self.ending in (Ending.FINISHED, Ending.FAILED)

    @property
    def is_comparable(self) -> bool:
        """Whether each hold kept its operation back: an engine does the same in every run, so that
        what differs otherwise is not their doing.
        """
        return self.is_decided and all(self.realised.values())

    @property
    def is_wrong(self) -> bool:
        """Whether it is wrong by itself: a count that is not true, a token that plain decoding
        does not give, an engine that failed.
        """
        is_failed = self.exit_code or self.ending is Ending.FAILED
        return bool(self.wrong or self.untrue or self.delivered != self.plain or is_failed)

    def differs(self, base: Outcome, *, unstable: Collection[str] = ()) -> bool:
        """Whether something is not what it is in another run: all of it is compared."""
        return self.seen != base.seen
