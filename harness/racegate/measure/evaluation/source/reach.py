"""LineReach: which lines each scenario or test executes, recorded once.

coverage.py counts; what was executed when modules were imported belongs to nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import coverage

from racegate.measure.evaluation.source.results import SourceMutant
from racegate.scenario.strict import StrictStruct

# Of a test with many examples so many come first; then others for as long.
ALIKE_FIRST, OTHERS_MAX_S = 5, 30.0


class LineReach(StrictStruct, frozen=True):
    """judge: who executed something, by name; seconds: that it took
    lines: file, from the root of the repository -> judge -> lines
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, tuple[int, ...]]]

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
        quickest = sorted(found, key=lambda name: (self.seconds[name], name))
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
    for each in found:
        seconds |= each.seconds
        for file, by_judge in each.lines.items():
            lines.setdefault(file, {}).update(by_judge)
    return LineReach(seconds=seconds, lines=lines)


def _count(alike: Counter[str], name: str) -> int:
    """How many examples of this one's test there were so far."""
    alike[name.partition("[")[0]] += 1
    return alike[name.partition("[")[0]]


def is_in_function(mutant: SourceMutant) -> bool:
    """Whether a call executes it: scopes of classes begin with a capital letter."""
    return mutant.edit.scope.rpartition(".")[2].lstrip("_")[:1].islower()


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
