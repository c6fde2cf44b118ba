"""The repair of a program: edges that were put in and run, the cheapest set that orders everything,
and the proof that each of them is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Hazard, Race, by_cause
from racegate.history.schedule import Holds
from racegate.history.verdict import verdict_text
from racegate.interpose.outcome import Ending, Outcome, changed
from racegate.scenario.strict import StrictStruct
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repair import diff_of
from racegate.targets.program.repairs.candidates import PossibleEdges, probing
from racegate.targets.program.repairs.choice import cheapest_sets
from racegate.targets.program.repairs.edges import SourceEdge, SourceFiles, WaitKind
from racegate.targets.program.repairs.trials import EdgeTrial, RunsSpentError, Trials, cost_of
from racegate.targets.program.source import NoPlaceError

SETS_MAX = 4  # tried together, the cheapest first
EACH_MAX = 12  # candidates of one cause
SCHEMA = "racegate.repair/1"
OF_ENGINE = "edge of the engine"
WAITS = {
    "nobody": "nobody waits",
    "stream": "a stream waits",
    "host": "the host waits",
    "device": "the host waits for the whole device",
}
OnTrial = Callable[[int, int], object]


class PutIn(StrictStruct, frozen=True, kw_only=True):
    """One edge of a repair.

    kind: how it orders; waiter: who waits for it; words: what stands where
    operations: that the waiter did not know to be complete, all turns together: the price; of an
        edge of racegate's own engine, how often it is waited for
    repairs: signatures that it orders by itself; without: signatures that are back if it alone is
        left out
    """

    kind: str
    waiter: str
    words: str
    operations: int
    repairs: tuple[str, ...]
    without: tuple[str, ...]

    @property
    def price(self) -> str:
        """Who waits for it, and for how much, in words."""
        waits = WAITS[self.waiter]
        if self.waiter == "nobody":
            return waits
        if self.kind == OF_ENGINE:
            return f"{waits}, {self.operations} times"
        plural = "" if self.operations == 1 else "s"
        return f"{waits}, for {self.operations} operation{plural} that it did not know of"


class UnrepairedRace(StrictStruct, frozen=True, kw_only=True):
    """A conflict that stands. reason: why no edge was found; tried: each candidate and what spoke
    against it
    """

    signature: str
    buffer: str
    reason: str
    tried: tuple[str, ...] = ()


class ProgramRepair(StrictStruct, frozen=True, kw_only=True):
    """What came of the repair of a program.

    argv: the script with its arguments; before, after: what is said of it without and with the
        edges; edges: in the order in which they were chosen
    conflicts: signatures that were to be repaired; left: those that are not
    diff: the changes, as `patch -p0` takes them; others: cheaper or dearer repairs of the same
    is_complete: every candidate was run; runs: how many there were
    reason: why there was nothing to do, or nothing could be done
    ending: how the program ended without edges
    under_holds: what the repaired program does under the holds of a witness, in words
    """

    schema: str = SCHEMA
    argv: tuple[str, ...]
    before: str
    after: str = ""
    conflicts: tuple[str, ...] = ()
    edges: tuple[PutIn, ...] = ()
    left: tuple[UnrepairedRace, ...] = ()
    diff: str = ""
    others: tuple[str, ...] = ()
    runs: int = 0
    is_complete: bool = True
    reason: str = ""
    ending: Ending = Ending.FINISHED
    under_holds: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """0 all is repaired or nothing was to be, 1 a conflict that no edge repairs, 3 a program
        that is not modelled or does not end, 4 runs were spent, 7 a script that failed by itself.
        """
        if self.ending in (Ending.NOT_MODELLED, Ending.TIMED_OUT):
            return ExitCode.NOT_MODELLED
        if self.ending is not Ending.FINISHED:
            return ExitCode.SCRIPT_FAILED
        if not self.left:
            return ExitCode.CLEAN
        return ExitCode.FINDING if self.is_complete else ExitCode.INCONCLUSIVE


@dataclass(slots=True)
class _Attempt:
    """A repair that is being looked for. wanted: signatures; said: of each, the candidates that
    were no repair; untouched: a file that no edge changes
    """

    trials: Trials
    wanted: frozenset[str]
    waiter_max: WaitKind
    on_trial: OnTrial
    untouched: str = ""
    useful: list[EdgeTrial] = field(default_factory=list)
    said: dict[str, list[str]] = field(default_factory=dict)
    is_complete: bool = True

    def try_all(self, races: Sequence[Race]) -> None:
        """Every candidate alone, those of one cause after the other."""
        trials, tried = self.trials, set[SourceEdge]()
        try:
            places = trials.run(trials.repaired(probing(races, trials.texts))).outcome.places
            candidates = PossibleEdges(trials.texts, places)
            for group in by_cause(races):
                edges = _interleaved(
                    [candidates.of(race, waiter_max=self.waiter_max) for race in group]
                )
                edges = [edge for edge in edges if self.untouched not in edge.paths]
                for edge in edges[: EACH_MAX + 2 * len(group)]:
                    if edge not in tried:
                        tried.add(edge)
                        self._try(edge, group)
        except RunsSpentError:
            self.is_complete = False

    def _try(self, edge: SourceEdge, group: Sequence[Race]) -> None:
        trial = self.trials.with_edges([edge])
        self.on_trial(self.trials.runs, self.trials.runs_max)
        why = trial.refused or ("" if trial.gone & self.wanted else "the conflict is still there")
        if not why:
            self.useful.append(trial)
            return
        for race in group:
            self.said.setdefault(race.signature, []).append(f"{edge.words}: {why}")

    def best(self) -> EdgeTrial | None:
        """The cheapest set that holds together, without the edges that it does not need."""
        sets = cheapest_sets(self.useful, self.wanted) if self.useful else []
        for chosen in sets[:SETS_MAX]:
            covered = frozenset(name for one in chosen for name in one.gone & self.wanted)
            edges = [edge for one in chosen for edge in one.edges]
            try:
                together = self.trials.with_edges(edges)
                if not together.refused and covered <= together.gone:
                    return self._needed(together, covered)
            except NoPlaceError:
                continue
            except RunsSpentError:
                self.is_complete = False
                return None
        return None

    def _needed(self, together: EdgeTrial, covered: frozenset[str]) -> EdgeTrial:
        """Without the edges of which the others do the work too. Raises RunsSpentError."""
        for edge in together.edges:
            rest = [other for other in together.edges if other != edge]
            if rest:
                less = self.trials.with_edges(rest)
                if not less.refused and covered <= less.gone:
                    return self._needed(less, covered)
        return together


def repairing_edges(trials: Trials) -> tuple[SourceEdge, ...]:
    """The cheapest edges that order what can be ordered of a program whose trials have begun."""
    races = trials.base.outcome.findings
    names = frozenset(race.signature for race in races)
    attempt = _Attempt(trials, names, WaitKind.HOST, lambda made, most: None)
    attempt.try_all(races)
    best = attempt.best()
    return () if best is None else best.edges


def repair_program(
    device: DeviceServer,
    program: Program,
    *,
    wanted: str = "",
    holds: Holds = (),
    waiter_max: WaitKind = WaitKind.HOST,
    runs_max: int = 200,
    on_trial: OnTrial = lambda made, most: None,
) -> ProgramRepair:
    """Looks for the cheapest edges that order all conflicts of a program, or one of them with all
    of its cause.

    wanted: the signature of the one, empty for all; holds: of its witness
    waiter_max: the dearest wait that may be put in; runs_max: runs that may be made
    """
    return repaired_in(
        Trials(device, program, SourceFiles(), runs_max),
        verdict_on(device),
        wanted=wanted,
        holds=holds,
        waiter_max=waiter_max,
        on_trial=on_trial,
    )


def verdict_on(device: DeviceServer) -> Callable[[Program], str]:
    """What is said of a program there, in words."""

    def verdict(program: Program) -> str:
        judged = judge_on(device, program, explores=False, runs_max=1, is_quiet=True)
        return verdict_text(judged.verdict, judged.tried)

    return verdict


def repaired_in(
    trials: Trials,
    verdict: Callable[[Program], str],
    *,
    wanted: str = "",
    holds: Holds = (),
    waiter_max: WaitKind = WaitKind.HOST,
    untouched: str = "",
    on_trial: OnTrial = lambda made, most: None,
) -> ProgramRepair:
    """The same in trials that have not begun. verdict: on the repaired program, in words
    untouched: a file that stays as it is, by its absolute path
    """
    program = trials.program
    trials.begin()
    base = trials.base.outcome
    before = _said_of(base)
    if base.ending is not Ending.FINISHED:
        reason = f"the program did not come to its end: {base.message or base.ending}"
        return ProgramRepair(
            argv=program.argv, before=before, reason=reason, ending=base.ending, runs=trials.runs
        )
    races = [race for race in base.findings if not wanted or race.signature == wanted]
    if not races:
        reason = f"the program has no conflict {wanted}".rstrip()
        return ProgramRepair(argv=program.argv, before=before, reason=reason, runs=trials.runs)
    names = frozenset(race.signature for race in races)
    attempt = _Attempt(trials, names, waiter_max, on_trial, untouched)
    attempt.try_all(races)
    return _told(attempt, races, attempt.best(), holds, verdict)


def _told(
    attempt: _Attempt,
    races: Sequence[Race],
    best: EdgeTrial | None,
    holds: Holds,
    verdict: Callable[[Program], str],
) -> ProgramRepair:
    trials, gone = attempt.trials, frozenset[str]() if best is None else best.gone
    left = tuple(_unrepaired(race, attempt) for race in races if race.signature not in gone)
    texts = {} if best is None else trials.texts.changed(best.edges)[0]
    after = under = ""
    if best is not None:
        repaired = trials.repaired(texts)
        after = verdict(repaired)
        under = _under(trials, repaired, holds)
    return ProgramRepair(
        argv=trials.program.argv,
        before=_said_of(trials.base.outcome),
        after=after,
        conflicts=tuple(race.signature for race in races),
        edges=() if best is None else _put_in(attempt, best),
        left=left,
        diff="".join(diff_of(Path(path), text, context=3) for path, text in texts.items()),
        others=() if best is None else _others(attempt, best),
        runs=trials.runs,
        is_complete=attempt.is_complete,
        under_holds=under,
    )


def _put_in(attempt: _Attempt, best: EdgeTrial) -> tuple[PutIn, ...]:
    return tuple(
        PutIn(
            kind=edge.kind,
            waiter=edge.waiter.name.lower(),
            words=edge.words,
            operations=price,
            repairs=_alone(attempt, edge),
            without=_without(attempt, best, edge),
        )
        for edge, price in zip(best.edges, best.prices, strict=True)
    )


def _alone(attempt: _Attempt, edge: SourceEdge) -> tuple[str, ...]:
    return tuple(sorted(attempt.trials.with_edges([edge]).gone & attempt.wanted))


def _without(attempt: _Attempt, best: EdgeTrial, edge: SourceEdge) -> tuple[str, ...]:
    """What is back if it alone is left out: those runs were made."""
    rest = [other for other in best.edges if other != edge]
    gone = attempt.trials.with_edges(rest).gone if rest else frozenset[str]()
    return tuple(sorted((best.gone & attempt.wanted) - gone))


def _others(attempt: _Attempt, best: EdgeTrial) -> tuple[str, ...]:
    """Other candidates that repair as much as an edge that was chosen, cheapest first."""
    wanted = [_alone(attempt, edge) for edge in best.edges]
    found = [
        trial
        for trial in sorted(attempt.useful, key=lambda one: cost_of([one]))
        if trial.edges[0] not in best.edges and any(set(names) <= trial.gone for names in wanted)
    ]
    return tuple(
        f"{trial.edges[0].words} ({trial.edges[0].waiter.name.lower()} waits, "
        f"{trial.prices[0]} operations)"
        for trial in found
    )


def _unrepaired(race: Race, attempt: _Attempt) -> UnrepairedRace:
    said = tuple(attempt.said.get(race.signature, ()))
    return UnrepairedRace(
        signature=race.signature,
        buffer=race.buffer,
        reason=_why_not(race, said, is_complete=attempt.is_complete),
        tried=said,
    )


def _why_not(race: Race, said: Sequence[str], *, is_complete: bool) -> str:
    if not race.pairs:  # inside one launch
        return race.edge
    if race.first.is_host:
        return (
            f"{race.first.lane} touches it first: threads have to hand over to each other (a "
            "queue, a lock, a join), and none of their waits orders them where it could be moved to"
        )
    if race.first.lane == race.second.lane:
        return (
            f"two threads give {race.first.lane} work in either order: they have to hand over to "
            "each other, no event changes it"
        )
    if not is_complete:
        return "not all candidates were run: allow more runs"
    if said:
        return f"none of {len(said)} candidates repairs it"
    if race.hazard is Hazard.REUSE:
        return "no name of the memory, and no place for a wait, was found at the program's lines"
    places = f"{race.first.place} and {race.second.place}"
    return f"no edge can be written at {places}: no statement of its own, or no name for a stream"


def _said_of(outcome: Outcome) -> str:
    count = len(outcome.findings)
    plural = "" if count == 1 else "s"
    found = f"{count} conflict{plural}" if count else "no conflict"
    return f"{found} in {outcome.events} events"


def _under(trials: Trials, repaired: Program, holds: Holds) -> str:
    """What the holds of a witness do to the repaired program."""
    if not holds:
        return ""
    try:
        held = trials.run(repaired, holds).outcome
    except RunsSpentError:
        return "not run: no runs were left"
    differing = changed(trials.base.outcome.observations, held.observations)
    if held.ending is not trials.base.outcome.ending:
        return f"it ends otherwise: {held.message or held.ending}"
    return f"these differ: {', '.join(sorted(differing))}" if differing else "as without them"


def _interleaved(lists: Sequence[list[SourceEdge]]) -> list[SourceEdge]:
    """One of each in turn, without repeats."""
    longest = max(map(len, lists), default=0)
    return list(dict.fromkeys(one[at] for at in range(longest) for one in lists if at < len(one)))
