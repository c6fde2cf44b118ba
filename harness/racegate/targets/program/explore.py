"""Landings of a program: whether some landing that its edges allow changes what it observes.

Each conflict says which operation may come after which access. The operation is held back in a run
of its own, and the observations are compared with those of a run in which nothing was held. Where
the program polls, both are made with every answer to its queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from racegate.history.finding import Race
from racegate.history.schedule import FORCED, Half, Hold, Holds
from racegate.history.verdict import Reach
from racegate.interpose.device.copies import COPIES, WORD
from racegate.interpose.device.touches import OTHER_THREADS
from racegate.interpose.outcome import DeviceKind, Outcome, changed
from racegate.interpose.ranks.group.kinds import is_collective
from racegate.targets.common.landings import (
    LandingRuns,
    combined,
    longest,
    number_of,
    repeats,
)

PAIRS_MAX = 8  # per finding, tried one at a time
Runs = LandingRuns[Outcome]
_UNSTABLE_END = "a second run without holds ended differently: nothing can be compared"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of each conflict, as a source of landings. A virtual device can land a copy in two
    halves, a real one cannot.
    """

    kind: DeviceKind = DeviceKind.VIRTUAL
    reach: ClassVar[Reach] = Reach.COMBINATIONS

    def landings(self, runs: Runs) -> Iterator[Holds]:
        """One operation at a time, short holds first, then all together, then halves of copies,
        then, if nothing shows, every combination of whole operations that is a schedule of its own.
        """
        control = runs.under(()).what
        runs.unstable = frozenset(changed(runs.base.observations, control.observations))
        if control.ending is not runs.base.ending:
            return
        races, untils = runs.base.findings, untils_of(runs.base.findings)
        positions = runs.base.positions
        for race in races:
            yield from _until_shown(race, runs, _alone(race, untils))
        found = -1
        while found != len(runs.harms):
            found = len(runs.harms)
            yield _all_late(runs)
        for race in races:
            yield from _until_shown(race, runs, self._torn(race, untils))
        for holds in combined(untils):
            if runs.harms:
                break
            if not repeats(holds, positions):
                yield holds

    def known(self, runs: Runs) -> int:
        """Combinations of landings, and halves of copies, with every answer to queries."""
        untils = untils_of(runs.base.findings)
        torn = {holds for race in runs.base.findings for holds in self._torn(race, untils)}
        return (number_of(untils, runs.base.positions) + len(torn)) * len(runs.bases)

    def limits(self, runs: Runs) -> tuple[str, ...]:
        reasons = []
        control = runs.made.get(((), 0))
        if control is not None and control.what.ending is not runs.base.ending:
            reasons.append(_UNSTABLE_END)
        if runs.unstable:
            names = ", ".join(sorted(runs.unstable))
            reasons.append(
                f"not compared, because it differs from run to run without holds: {names}"
            )
        if OTHER_THREADS in runs.base.not_seen:
            reasons.append("host threads of the program run in one order only")
        undecided = sum(not landing.what.is_decided for landing in runs.made.values())
        if undecided:
            reasons.append(f"{undecided} runs under holds did not come to an end")
        realised = {landing.holds for landing in runs.held if landing.is_realised}
        unrealised = len({landing.holds for landing in runs.held} - realised)
        if unrealised:
            reasons.append(f"{unrealised} sets of holds of which one kept nothing back")
        reasons += [
            f"[{race.signature}]: threads, parts of a graph or of a launch have more orders"
            for race in runs.base.findings
            if _has_more_orders(race) and runs.harm_of(race) is None
        ]
        return tuple(reasons)

    def _torn(self, race: Race, untils: dict[str, tuple[str, ...]]) -> Iterator[Holds]:
        """One copy of the conflict in two halves, each of them late as long as it may be."""
        if self.kind is not DeviceKind.VIRTUAL or race.nbytes <= WORD:
            return
        for first in _held_alone(race):
            if first.startswith(COPIES):
                for until, half in product(reversed(untils[first]), Half):
                    yield (Hold(op=first, until=until, half=half),)


def _until_shown(race: Race, runs: Runs, landings: Iterator[Holds]) -> Iterator[Holds]:
    """Those landings, until a run shows the conflict."""
    while runs.harm_of(race) is None and (holds := next(landings, None)) is not None:
        yield holds


def _all_late(runs: Runs) -> Holds:
    """All operations of conflicts that nothing has shown yet, except those that show others."""
    shown = {hold.op for landing in runs.harms for hold in landing.holds}
    races = runs.base.findings
    hidden = {first for race in races if runs.harm_of(race) is None for first, _ in race.pairs}
    return longest(first for first in untils_of(races) if first in hidden - shown)


def untils_of(races: tuple[Race, ...]) -> dict[str, tuple[str, ...]]:
    """Per operation that can be held, before which accesses it may land, latest last. A collective
    lands late by itself, so before the first of them is another landing too.
    """
    untils: dict[str, list[str]] = {}
    hosts: set[str] = set()
    for race in races:
        for first, second in race.pairs:
            untils.setdefault(first, []).append(second)
            if race.first.is_host:
                hosts.add(first)
    return {
        first: (FORCED,)
        if first in hosts
        else (*dict.fromkeys(seconds[0 if is_collective(first) else 1 :]), FORCED)
        for first, seconds in untils.items()
    }


def _alone(race: Race, untils: dict[str, tuple[str, ...]]) -> Iterator[Holds]:
    """One operation of the conflict held: each as short as it may be, which turns round the fewest
    accesses, and as long; then up to what is between.
    """
    firsts = _held_alone(race)
    for first in firsts:
        for until in dict.fromkeys((untils[first][0], untils[first][-1])):
            yield (Hold(op=first, until=until),)
    for first in firsts:
        for until in untils[first][1:-1]:
            yield (Hold(op=first, until=until),)


def _held_alone(race: Race) -> list[str]:
    return list(dict.fromkeys(first for first, _ in race.pairs))[:PAIRS_MAX]


def _has_more_orders(race: Race) -> bool:
    """Whether holding the first operation back is not all that could happen: a thread goes on when
    another waits for it, the parts of a graph run at times of their own, and of what races inside
    one launch (which has no pairs) nothing can be held.
    """
    has_graph = "graph" in (race.first.operation, race.second.operation)
    return race.first.is_host or has_graph or not race.pairs
