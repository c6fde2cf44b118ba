"""Runs of a program with edges put in, and what they say: which conflicts are gone, what is new,
whether it still does the same, and what the edges make wait.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from racegate.history.finding import Race
from racegate.history.schedule import Holds
from racegate.interpose.device.touches import QUERIES
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Outcome, Plan, changed
from racegate.targets.common.search import POLLS
from racegate.targets.program.judge import MORE_S, TIMES_MAX
from racegate.targets.program.launch import Program
from racegate.targets.program.repairs.edges import SourceEdge, SourceFiles, WaitKind


class RunsSpentError(Exception):
    """No further run may be made."""


class RunsProgram(Protocol):
    """What runs a program, whose sources may be other ones."""

    def run(
        self, program: Program, plan: Plan, *, is_quiet: bool = False, stdout: Path | None = None
    ) -> Outcome:
        """One run under one plan. stdout: the file for what it prints"""
        ...


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded run. printed: a digest of what it wrote to standard output"""

    outcome: Outcome
    printed: str

    @property
    def races(self) -> dict[str, Race]:
        """Its conflicts by signature."""
        return {race.signature: race for race in self.outcome.findings}


class EdgeTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A run with edges. gone, new: signatures, against the run without; prices: of each edge

    refused: why the edges are no repair, whatever they order; empty: nothing speaks against them
    """

    edges: tuple[SourceEdge, ...]
    outcome: Outcome
    gone: frozenset[str]
    new: tuple[str, ...]
    prices: tuple[int, ...]
    refused: str = ""


Cost = tuple[int, int, int, int, int, int]


def cost_of(trials: Sequence[EdgeTrial]) -> Cost:
    """What is compared first comes first: waits for the device, waits of the host, edges, then
    operations that are waited for, how far from the accesses, lines.
    """
    edges = [edge for trial in trials for edge in trial.edges]
    return (
        sum(edge.waiter is WaitKind.DEVICE for edge in edges),
        sum(edge.waiter is WaitKind.HOST for edge in edges),
        len(edges),
        sum(sum(trial.prices) for trial in trials),
        sum(edge.depth for edge in edges),
        sum(edge.lines for edge in edges),
    )


@dataclass(slots=True)
class Trials:
    """The runs of one program, each set of edges once.

    runs_max: how many may be made in all; base: the run as it is, for comparison
    """

    device: RunsProgram
    program: Program
    texts: SourceFiles
    runs_max: int
    runs: int = 0
    base: Seen = field(init=False)
    _unstable: frozenset[str] = frozenset()
    _prints_alike: bool = True
    _made: dict[tuple[SourceEdge, ...], EdgeTrial] = field(default_factory=dict)

    def begin(self) -> None:
        """The run as it is; a second one says what differs by itself and so is not compared. Raises
        BadInput for ranks: prices and latches are of one process.
        """
        if self.program.ranks or self.program.gpus:
            raise BadInput("a repair or a plain test is of one process and one GPU, not of ranks")
        start_s = time.monotonic()
        self.base = self.run(self.program)
        if not self.program.timeout_s:
            limit_s = TIMES_MAX * (time.monotonic() - start_s) + MORE_S
            self.program = replace(self.program, timeout_s=limit_s)
        if not self.base.outcome.findings:
            return
        again = self.run(self.program)
        differing = changed(self.base.outcome.observations, again.outcome.observations)
        self._unstable = frozenset(differing)
        self._prints_alike = self.base.printed == again.printed

    def run(self, program: Program, holds: Holds = ()) -> Seen:
        """One recorded run, with a second one in which queries are first answered "not ready" if
        there are any: the conflicts are those of both. Raises RunsSpentError.
        """
        with tempfile.NamedTemporaryFile(prefix="racegate-") as file:
            outcome = self._once(program, Plan(holds=holds), Path(file.name))
            printed = hashlib.sha256(Path(file.name).read_bytes()).hexdigest()
        if outcome.ending is Ending.FINISHED and QUERIES in outcome.not_seen and not holds:
            polled = self._once(program, Plan(polls=POLLS), None)
            known = {race.signature for race in outcome.findings}
            more = [race for race in polled.findings if race.signature not in known]
            findings = (*outcome.findings, *more)
            outcome = msgspec.structs.replace(outcome, findings=findings)
            if polled.ending is not Ending.FINISHED:
                outcome = msgspec.structs.replace(
                    outcome, ending=polled.ending, message=polled.message
                )
        return Seen(outcome=outcome, printed=printed)

    def _once(self, program: Program, plan: Plan, stdout: Path | None) -> Outcome:
        if self.runs >= self.runs_max:
            raise RunsSpentError
        self.runs += 1
        return self.device.run(program, plan, is_quiet=True, stdout=stdout)

    def with_edges(self, edges: Sequence[SourceEdge]) -> EdgeTrial:
        """Raises RunsSpentError, and NoPlaceError where two of them cannot stand together."""
        key = tuple(edges)
        if key not in self._made:
            texts, waits = self.texts.changed(edges)
            seen = self.run(self.repaired(texts))
            prices = tuple(
                sum(seen.outcome.waits.get(waits.get(at, ""), ())) for at in range(len(edges))
            )
            self._made[key] = self._compared(key, seen, prices)
        return self._made[key]

    def repaired(self, texts: dict[str, str]) -> Program:
        """The program with other texts in the place of its files."""
        return replace(self.program, sources=tuple(texts.items()))

    def _compared(
        self, edges: tuple[SourceEdge, ...], seen: Seen, prices: tuple[int, ...]
    ) -> EdgeTrial:
        before, after = self.base.races, seen.races
        return EdgeTrial(
            edges=edges,
            outcome=seen.outcome,
            gone=frozenset(before) - frozenset(after),
            new=tuple(sorted(set(after) - set(before))),
            prices=prices,
            refused=self.refusal(seen),
        )

    def refusal(self, seen: Seen) -> str:
        """Why a changed program is not the one that was to be repaired; empty if it is."""
        base, outcome = self.base.outcome, seen.outcome
        if outcome.ending is not base.ending or outcome.exit_code != base.exit_code:
            told = outcome.message.partition("\n")[0] or f"exit code {outcome.exit_code}"
            return f"the program ends otherwise: {told}"
        new = set(seen.races) - set(self.base.races)
        if new:
            return f"new conflicts: {', '.join(sorted(new))}"
        differing = changed(base.observations, outcome.observations) - self._unstable
        if differing:
            return f"other values are observed: {', '.join(sorted(differing))}"
        if self._prints_alike and seen.printed != self.base.printed:
            return "something else is printed"
        return ""
