"""LineReach: which lines each scenario or test executes, recorded once.

coverage.py counts; what was executed when modules were imported belongs to nobody.

ScriptFeatures: a statement belongs to the feature that most of the scripts that execute it have,
and few of those that do not. No list of files says so, so that code that moves takes its mutants
along. In a sample every feature has the same weight, and within it every operator.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import accumulate, zip_longest
from pathlib import Path

import coverage

from racegate.check.checker import Checkers
from racegate.explore.features.catalogue import FEATURE_BY_NAME, features_of
from racegate.explore.features.facts import facts_of
from racegate.measure.evaluation.source.results import SourceMutant
from racegate.scenario.files import load_all, scenario_paths
from racegate.scenario.strict import StrictStruct

# Of a test with many examples so many come first; then others for as long.
ALIKE_FIRST, OTHERS_MAX_S = 5, 30.0
# Of the catalogue, those that have lines of their own. What nearly every script executes is the
# core; what none does is mutated too, and missed.
MUTATED = (
    "cache_mode = align",
    "cache_mode = all",
    "cache_mode = offload",
    "transfers = thread",
    "transfers = nic",
    "state migration",
    "layout = slots",
    "cascade = on",
    "positions = three-dimensional",
    "drafts behind an image",
    "constrained row",
    "draft_sampling = random",
    "drafter = mtp",
    "drafter = ngram",
    "drafter = extract_hidden_states",
    "rejection",
    "graph replay",
    "graph_mode = piecewise",
    "zeroing = fresh",
    "dummy step between steps",
    "preemption",
    "condense move",
    "numerics = float32",
    "rotary = partial",
)
CORE, UNRUN = "core", "run by no script"
# How much larger the share of scripts that execute a statement has to be where the feature is.
CONTRAST_LEAST = 0.5


class LineReach(StrictStruct, frozen=True):
    """judge: who executed something, by name; seconds: that it took
    lines: file, from the root of the repository -> judge -> lines
    failing: tests that fail without a mutant in the child that records them: they judge nothing
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, tuple[int, ...]]]
    failing: tuple[str, ...] = ()

    def judges(self, mutant: SourceMutant) -> list[str]:
        """Who executes a mutant's statement, the quickest first; of the examples of one test only a
        few, and behind all others more of them. Of what only an import executes, who executes
        anything of the file.
        """
        here = self.lines.get(mutant.file, {})
        top, last = mutant.edit.lines
        found = [name for name, lines in here.items() if any(top <= n <= last for n in lines)]
        if not found and not is_in_function(mutant):
            found = list(here) or list(self.seconds)
        sound = set(found) - set(self.failing)
        quickest = sorted(sound, key=lambda name: (self.seconds[name], name))
        alike: Counter[str] = Counter()
        first = [name for name in quickest if _count(alike, name) <= ALIKE_FIRST]
        known = set(first)
        others = [name for name in quickest if name not in known]
        sums = accumulate(self.seconds[name] for name in others)
        return first + [name for name, s in zip(others, sums, strict=True) if s <= OTHERS_MAX_S]


def merged(found: Iterable[LineReach]) -> LineReach:
    """Of all of some judges, of which none is in two."""
    seconds: dict[str, float] = {}
    lines: dict[str, dict[str, tuple[int, ...]]] = {}
    failing: list[str] = []
    for each in found:
        seconds |= each.seconds
        failing += each.failing
        for file, by_judge in each.lines.items():
            lines.setdefault(file, {}).update(by_judge)
    return LineReach(seconds=seconds, lines=lines, failing=tuple(sorted(failing)))


def _count(alike: Counter[str], name: str) -> int:
    """How many examples of this one's test there were so far."""
    alike[name.partition("[")[0]] += 1
    return alike[name.partition("[")[0]]


def is_in_function(mutant: SourceMutant) -> bool:
    """Whether a call executes it, as all that is in C: scopes of classes begin with a capital
    letter.
    """
    name = mutant.edit.scope.rpartition(".")[2].lstrip("_")
    return mutant.file.endswith(".c") or name[:1].islower()


class LineRecorder:
    """Counts lines of files for one judge after the other."""

    def __init__(self, root: Path, files: Sequence[Path]) -> None:
        self._root = root
        self._files = files
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(
            data_file=None, include=[str(path) for path in files], messages=False
        )

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Inside, lines are counted."""
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()

    def turn_to(self, judge: str) -> None:
        """From now on they are counted for this one."""
        self._coverage.switch_context(judge)

    def took(self, judge: str, seconds: float) -> None:
        """How long a judge took."""
        self._seconds[judge] = self._seconds.get(judge, 0.0) + seconds

    def reach(self) -> LineReach:
        """What was counted."""
        data = self._coverage.get_data()
        measured = data.measured_files()
        return LineReach(
            seconds=self._seconds,
            lines={
                str(path.relative_to(self._root)): _by_judge(data.contexts_by_lineno(str(path)))
                for path in self._files
                if str(path) in measured
            },
        )


def _by_judge(lines: Mapping[int, Iterable[str]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for line, judges in sorted(lines.items()):
        for judge in filter(None, judges):
            found.setdefault(judge, []).append(line)
    return {judge: tuple(numbers) for judge, numbers in found.items()}


class ScriptFeatures:
    """Which scripts have which of the mutated features. scripts: features by name of the script"""

    def __init__(self, scripts: Mapping[str, Set[str]]) -> None:
        assert FEATURE_BY_NAME.keys() >= set(MUTATED)
        self._scripts = frozenset(scripts)
        self._having = {
            name: frozenset(script for script, features in scripts.items() if name in features)
            for name in MUTATED
        }

    def of(self, judges: Sequence[str]) -> str:
        """The one that a statement belongs to which these scripts and witnesses execute."""
        here = self._scripts.intersection(judges)
        contrast = {name: self._contrast(here, having) for name, having in self._having.items()}
        best = max(contrast, key=lambda name: contrast[name])
        return best if contrast[best] >= CONTRAST_LEAST else CORE

    def _contrast(self, here: frozenset[str], having: frozenset[str]) -> float:
        others = self._scripts - having
        if not having or not others:
            return 0.0
        return len(here & having) / len(having) - len(here & others) / len(others)


def script_features(folder: Path) -> ScriptFeatures:
    """Runs every script of a folder once, eagerly, and looks at what it has."""
    checkers, found = Checkers(), {}
    for _, scenario in load_all(scenario_paths(folder)):
        run = checkers.of(scenario).execute()
        found[scenario.name] = features_of(facts_of(scenario, run))
    return ScriptFeatures(found)


def in_turns(
    mutants: Sequence[SourceMutant],
    *,
    most: int,
    seed: int,
    matters: Callable[[SourceMutant], bool] = lambda one: True,
) -> list[SourceMutant]:
    """So many of them that matter by seed, and those between them: one of each operator, then
    another one of each. Each has a place of its own in the draw, so that a larger sample contains a
    smaller one.
    """
    by_operator: dict[str, list[SourceMutant]] = defaultdict(list)
    for one in sorted(mutants, key=lambda one: random.Random(f"{seed} {one.key}").random()):
        by_operator[one.edit.operator].append(one)
    turns = zip_longest(*(some for _, some in sorted(by_operator.items())))
    order = [one for turn in turns for one in turn if one is not None]
    sums = accumulate(map(matters, order), initial=0)
    return [one for one, before in zip(order, sums, strict=False) if before < most]
