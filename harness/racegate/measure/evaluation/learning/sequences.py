"""Sequences: the scenarios of a seed, as each approach draws them, and which targets each concerns.

A sequence is drawn once, on the engine without fault, and tried on every target: as long as nothing
is found, an engine with a defect shows what the one without shows.
"""

from __future__ import annotations

from collections.abc import Iterable

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.explore.generate import seeded
from racegate.explore.learning.behaviour import behaviours_of
from racegate.explore.learning.choices import Choices, DrawnScenario, drawn, replayed
from racegate.explore.learning.corpus import Corpus, Energy, TriedScenario
from racegate.explore.swarm import Pick, Theme
from racegate.measure.evaluation.learning.results import Approach
from racegate.measure.evaluation.learning.targets import ENGINE, HuntTarget
from racegate.measure.evaluation.source.reach import LineReach, LineRecorder, is_in_function
from racegate.measure.evaluation.source.sources import ROOT, files_of, find_source
from racegate.scenario.strict import StrictStruct

# What a round draws, it draws from what the rounds before it have reached.
ROUND = 32


ENERGIES = {Approach.LEARNED: Energy.RARE, Approach.EVEN: Energy.EVEN}


class ScenarioSequence(StrictStruct, frozen=True, kw_only=True):
    """The first scenarios of an approach and a seed.

    choices: that each is drawn with; concerned: target -> the scenarios that may show it
    reached: different behaviours after each round
    """

    approach: Approach
    seed: int
    choices: tuple[Choices, ...]
    concerned: dict[str, tuple[int, ...]]
    reached: tuple[int, ...]

    def checker(self, index: int) -> Checker:
        """Of one scenario. Raises CheckError."""
        further = seeded(self.seed, index)
        name = f"{self.approach}-{self.seed}-{index}"
        return Checker(drawn(replayed(self.choices[index], further), name=name).scenario)


def sequence_of(
    approach: Approach, seed: int, scenarios: int, targets: Iterable[HuntTarget]
) -> ScenarioSequence:
    """Draws and runs the scenarios of an approach, round by round. scenarios: so many"""
    corpus = Corpus(seed, ENERGIES.get(approach, Energy.RARE))
    looker = _Looker()
    choices: list[Choices] = []
    reached: list[int] = []
    while len(choices) < scenarios:
        tried: list[TriedScenario] = []
        for index in range(len(choices), min(len(choices) + ROUND, scenarios)):
            one = _drawn(approach, corpus, seed, index)
            tried.append(looker.look(index, one))
        choices += [one.choices for one in tried]
        corpus.learn(tried)
        reached.append(corpus.reached)
    return ScenarioSequence(
        approach=approach,
        seed=seed,
        choices=tuple(choices),
        concerned=looker.concerned(targets),
        reached=tuple(reached),
    )


def _drawn(approach: Approach, corpus: Corpus, seed: int, index: int) -> DrawnScenario:
    name = f"{approach}-{seed}-{index}"
    if approach in ENERGIES:
        return corpus.draw(index, name=name)
    pick = seeded(seed, index)
    return drawn(pick if approach is Approach.UNIFORM else _about_all(pick), name=name)


def _about_all(pick: Pick) -> Pick:
    """The same picks, but for the first ones, which switch on every theme."""
    themes = iter(Theme)

    def picked(count: int) -> int:
        value = pick(count)
        return value if next(themes, None) is None else count - 1

    return picked


class _Looker:
    """Runs scenarios without fault, and sees what they reach and which lines they execute."""

    def __init__(self) -> None:
        self._recorder = LineRecorder(ROOT, files_of(find_source(ENGINE)))
        self._edges: dict[int, frozenset[str]] = {}

    def look(self, index: int, one: DrawnScenario) -> TriedScenario:
        """One scenario."""
        try:
            checker = Checker(one.scenario)
        except CheckError:
            return TriedScenario(choices=one.choices, behaviours=frozenset())
        with self._recorder.counting():
            self._recorder.turn_to(str(index))
            run = checker.execute()
        behaviours = behaviours_of(checker.scenario, run)
        self._edges[index] = frozenset(name for kind, name, _ in behaviours if kind == "edge")
        return TriedScenario(choices=one.choices, behaviours=behaviours)

    def concerned(self, targets: Iterable[HuntTarget]) -> dict[str, tuple[int, ...]]:
        """By target: the scenarios that wait for its edge, or execute its line."""
        reach = self._recorder.reach()
        return {target.name: tuple(self._concerned(target, reach)) for target in targets}

    def _concerned(self, target: HuntTarget, reach: LineReach) -> list[int]:
        if target.mutation is not None:
            return [i for i, edges in self._edges.items() if target.mutation.edge in edges]
        if target.mutant is None or not is_in_function(target.mutant):
            return list(self._edges)
        top, last = target.mutant.edit.lines
        lines = reach.lines.get(target.mutant.file, {})
        found = (int(i) for i, those in lines.items() if any(top <= n <= last for n in those))
        return sorted(found)
