"""The job: mutants of a release's source, each judged by the release's own gate beside the release,
until so many that matter were judged. Resumable, by seed.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.jobs.foreign.bases import content_of
from racegate.jobs.foreign.edited import EditedRelease, FreeReleases
from racegate.jobs.foreign.releases import ReleaseCell, in_threads, kind_of
from racegate.jobs.stopping import ANEW, StoppedError
from racegate.measure.evaluation.foreign.edits import release_edits
from racegate.measure.evaluation.foreign.probes import probed_mutants
from racegate.measure.evaluation.foreign.results import (
    Draw,
    ReleaseMutation,
    ReleaseSpec,
    UnrunEntry,
)
from racegate.measure.evaluation.source.kept import KeptResults
from racegate.measure.evaluation.source.reach import LineReach, in_turns, is_in_function
from racegate.measure.evaluation.source.results import (
    MISSED,
    EquivalentTable,
    SourceFate,
    SourceMutant,
    SourceReport,
    SourceResult,
    fate_result,
    load_equivalents,
)
from racegate.measure.evaluation.source.sources import mutants_by
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Scenario
from racegate.targets.common.wire import ReleaseRun, SourceEdit

UNEDITED = "its code cannot be exchanged while the engine runs"
NOTICED = frozenset({ExitCode.FINDING, ExitCode.BROKEN_HARNESS})
# How a mutant survived of whose expression no scenario makes another value.
ALIKE = "the same value in every scenario"
_PROBED = 2  # times the sample: some change nothing, and some cannot be edited


def mutate_release(
    release: EditedRelease,
    cell: ReleaseCell,
    scenarios: Sequence[Scenario],
    asked: ReleaseSpec,
    *,
    on_done: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> ReleaseMutation:
    """Judges mutants of a release. on_done: scenarios are recorded, then mutants judged

    Raises BadInputError for a file that there is not, EquivalentError for an entry that is out of
    date, ServerLost if the engine is, StoppedError if it is told to stop: its one result is what
    was judged.
    """
    end = monotonic() + asked.seconds
    every = _mutants(cell, asked.files)
    equivalents, missing = _tables(cell, asked)
    equivalents.check(every)
    named = enumerate(scenarios, 1)
    release.record(scenarios, lambda name: on_done(next(named)[0], len(scenarios), name))
    reach = _reach_of(release, asked.files)
    lines = {file: frozenset().union(*by.values()) for file, by in reach.lines.items()}
    reached = [one for one in every if is_in_function(one) and _is_run(one, lines)]
    order = in_turns(reached, most=len(reached), seed=asked.seed)
    kept = KeptResults(asked.keep, _state(cell, scenarios), equivalents)
    if asked.draw is Draw.AGAIN:
        order = [one for one in order if kept.has_missed(one)]
    alike = _alike(release, cell, order[: _PROBED * asked.sample])
    judge = _ReleaseJudge(release, cell, reach, alike)
    judged = _Judged()

    def is_over() -> bool:
        return judged.matter == asked.sample or monotonic() >= end

    def made() -> ReleaseMutation:
        survivors = {one.key for one in judged.found if one.fate in MISSED}
        return ReleaseMutation(
            report=SourceReport(
                source=cell.title,
                total=len(every),
                sample=asked.sample,
                seed=asked.seed,
                results=tuple(sorted(judged.found, key=lambda one: (one.file, one.line, one.key))),
            ),
            reached=len(reached),
            unedited=judged.unedited,
            scenarios=tuple(release.recorded),
            missing={one.key: missing.of(one) for one in reached if one.key in survivors},
            unrun=tuple(_unrun(every, lines)),
        )

    try:
        with closing(judge.each(order, kept, asked.draw, is_over)) as told:
            for one, known in told:
                result = equivalents.applied(one, known)
                if judged.takes(result):
                    what = f"{result.fate} {result.file}:{result.line}"
                    on_done(judged.matter, asked.sample, what)
                if judged.matter == asked.sample:
                    break
    except KeyboardInterrupt as stop:
        done = f"{judged.matter} of {asked.sample} mutants judged"
        again = ANEW if asked.keep is None else "the same command"
        raise StoppedError(stop, done=done, go_on=again, results=[made()]) from stop
    return made()


@dataclass(slots=True)
class _Judged:
    """What became of mutants so far. unedited: in code that cannot be exchanged; matter: of those
    that are not known to change nothing
    """

    found: list[SourceResult] = field(default_factory=list)
    unedited: int = 0
    matter: int = 0

    def takes(self, result: SourceResult) -> bool:
        """One more; False for one that counts nowhere."""
        if result.how == UNEDITED:
            self.unedited += 1
            return False
        self.found.append(result)
        self.matter += result.fate is not SourceFate.EQUIVALENT
        return True


def judged_elsewhere(
    mutation: ReleaseMutation,
    release: EditedRelease,
    cell: ReleaseCell,
    scenarios: Sequence[Scenario],
    asked: ReleaseSpec,
    *,
    on_done: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> ReleaseMutation:
    """The same mutants, of which those that nobody noticed are judged in another cell too, and
    those that are said to change nothing. on_done: as of `mutate_release`

    Raises as that does, and EquivalentError if one that changes nothing is noticed here.
    """
    every = {one.key: one for one in _mutants(cell, asked.files)}
    equivalents, _ = _tables(cell, asked)
    named = enumerate(scenarios, 1)
    release.record(scenarios, lambda name: on_done(next(named)[0], len(scenarios), name))
    reach = _reach_of(release, asked.files)
    lines = {file: frozenset().union(*by.values()) for file, by in reach.lines.items()}
    left = [one for one in mutation.report.results if one.fate is not SourceFate.KILLED]
    alike = _alike(release, cell, [every[one.key] for one in left])
    judge = _ReleaseJudge(release, cell, reach, alike)
    kept = KeptResults(_kept_of(asked.keep, cell), _state(cell, scenarios), equivalents)
    found = {result.key: result for result in mutation.report.results}
    asked_for = [every[one.key] for one in left if _is_run(every[one.key], lines)]
    with closing(judge.each(asked_for, kept, asked.draw, lambda: False)) as told:
        for number, (mutant, again) in enumerate(told, 1):
            if again.fate is SourceFate.KILLED:
                by = f"{again.by}, {' '.join(cell.settings)}"
                killed = msgspec.structs.replace(again, by=by)
                found[mutant.key] = equivalents.applied(mutant, killed)
            on_done(number, len(asked_for), f"{again.fate} {again.file}:{again.line}")
    missed = {one.key for one in found.values() if one.fate in MISSED}
    return msgspec.structs.replace(
        mutation,
        report=msgspec.structs.replace(mutation.report, results=tuple(found.values())),
        missing={key: what for key, what in mutation.missing.items() if key in missed},
        unrun=tuple(_still_unrun(mutation.unrun, lines)),
    )


def _as_before(again: SourceResult, before: SourceResult | None, draw: Draw) -> SourceResult:
    """A result in some of the scenarios: that a mutant makes another value in others stays true."""
    if draw is Draw.AGAIN and again.how == ALIKE and before is not None:
        return msgspec.structs.replace(again, how=before.how)
    return again


def _tables(cell: ReleaseCell, asked: ReleaseSpec) -> tuple[EquivalentTable, EquivalentTable]:
    """Mutants that change nothing, and what would notice others."""
    settings = cell.settings
    return (
        load_equivalents(asked.equivalent, settings=settings),
        load_equivalents(asked.missing, settings=settings),
    )


def _kept_of(keep: Path | None, cell: ReleaseCell) -> Path | None:
    """Beside the file of the first cell, one for each other."""
    return None if keep is None else keep.with_stem("-".join((keep.stem, *cell.settings)))


def _still_unrun(
    unrun: Sequence[UnrunEntry], lines: Mapping[str, frozenset[int]]
) -> Iterator[UnrunEntry]:
    for one in unrun:
        rest = tuple(line for line in one.lines if line not in lines[one.file])
        if rest:
            is_whole = one.is_whole and rest == one.lines
            yield UnrunEntry(one.file, one.scope, rest, is_whole=is_whole)


def _mutants(cell: ReleaseCell, files: Sequence[str]) -> list[SourceMutant]:
    folder = package_of(cell)
    found: list[SourceMutant] = []
    for file in files:
        try:
            content = (folder / file).read_bytes()
        except OSError as error:
            raise BadInputError(f"{cell.title} has no {file} to mutate: {error}") from error
        found += mutants_by(release_edits(content), file, content)
    return found


def package_of(cell: ReleaseCell) -> Path:
    """The folder of the package that a cell imports."""
    packaging = kind_of(cell).packaging
    environment = packaging.environment_of(cell.release, checkout=cell.checkout)
    return environment.package(packaging.module)


def _reach_of(release: EditedRelease, files: Sequence[str]) -> LineReach:
    known = release.recorded
    return LineReach(
        seconds={name: one.run_s for name, one in known.items()},
        lines={
            file: {
                name: tuple(sorted(one.lines[file]))
                for name, one in known.items()
                if file in one.lines
            }
            for file in files
        },
    )


def _alike(
    release: EditedRelease, cell: ReleaseCell, mutants: Sequence[SourceMutant]
) -> dict[str, frozenset[str]]:
    """The keys of mutants that change nothing in a scenario, by its name."""
    folder, files = package_of(cell), dict.fromkeys(one.file for one in mutants)
    sources = {file: (folder / file).read_bytes() for file in files}
    probed = probed_mutants(mutants, sources, {file: _module_of(cell, file) for file in files})
    return {name: probed.of(release.alike(name, probed.probes)) for name in release.recorded}


def _module_of(cell: ReleaseCell, file: str) -> str:
    return ".".join(Path(kind_of(cell).packaging.module, file).with_suffix("").parts)


def _is_run(mutant: SourceMutant, lines: Mapping[str, frozenset[int]]) -> bool:
    top, last = mutant.edit.lines
    return not lines[mutant.file].isdisjoint(range(top, last + 1))


def _state(cell: ReleaseCell, scenarios: Sequence[Scenario]) -> str:
    """A digest of all that a survivor hangs on."""
    decides = msgspec.json.encode((content_of(cell), cell, scenarios))
    return hashlib.blake2b(decides, digest_size=8).hexdigest()


class _ReleaseJudge:
    """Judges mutants, one on each engine at a time: what notices most comes first, in the file and
    in all.

    alike: the keys of mutants that change nothing in a scenario, by its name
    """

    def __init__(
        self,
        release: EditedRelease,
        cell: ReleaseCell,
        reach: LineReach,
        alike: Mapping[str, frozenset[str]],
    ) -> None:
        self._free = FreeReleases(release)
        self._is_left = Event()
        self._cell = cell
        self._reach = reach
        self._alike = alike
        self._in_file: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._in_all: Counter[str] = Counter()

    def each(
        self,
        mutants: Sequence[SourceMutant],
        kept: KeptResults,
        draw: Draw,
        is_over: Callable[[], bool],
    ) -> Generator[tuple[SourceMutant, SourceResult]]:
        """What becomes of each, in their order, kept from then on. is_over: no further one is
        begun, and none behind is told
        """

        def fresh(mutant: SourceMutant) -> SourceResult | None:
            is_asked = kept.result(mutant) is None and not is_over()
            return self._result(mutant) if is_asked else None

        with in_threads(self._free.count, ReleaseRun) as in_order:
            try:
                for mutant, result in zip(mutants, in_order(fresh, mutants), strict=True):
                    if result is not None:
                        kept.add(_as_before(result, kept.before(mutant), draw))
                    elif kept.result(mutant) is None or is_over():
                        return
                    yield mutant, kept.known(mutant)
            finally:
                self._is_left.set()

    def _result(self, mutant: SourceMutant) -> SourceResult:
        """One mutant, on an engine that nobody else has."""
        with self._free.taken() as release:
            engine = release.opened.engine
            cpu_s = engine.cpu_s
            fate, by, how = self._judge(release, mutant)
            used_s = engine.cpu_s - cpu_s
        if fate is SourceFate.KILLED:
            self._in_file[mutant.file][by] += 1
            self._in_all[by] += 1
        return fate_result(mutant, fate, by=by, how=how, cpu_s=used_s)

    def _judge(self, release: EditedRelease, mutant: SourceMutant) -> tuple[SourceFate, str, str]:
        """(fate, by, how)"""
        edit = self._edit(mutant)
        undecided: tuple[str, str] | None = None
        judges = self._order(mutant)
        for name in judges:
            if self._is_left.is_set():  # nobody waits for it
                return SourceFate.INCONCLUSIVE, name, "not judged to the end"
            noticed = release.noticed(name, edit)
            if not noticed.is_edited:
                return SourceFate.UNREACHED, "", UNEDITED
            if noticed.code in NOTICED:
                return SourceFate.KILLED, name, noticed.what
            if noticed.code is not ExitCode.CLEAN and undecided is None:
                undecided = (name, noticed.what)
        if undecided is not None:
            return SourceFate.INCONCLUSIVE, *undecided
        return SourceFate.SURVIVED, "", "" if judges else ALIKE

    def _order(self, mutant: SourceMutant) -> list[str]:
        kills, all_kills = self._in_file[mutant.file], self._in_all
        quickest = [
            name for name in self._reach.judges(mutant) if mutant.key not in self._alike[name]
        ]
        return sorted(quickest, key=lambda name: (-kills[name], -all_kills[name]))

    def _edit(self, mutant: SourceMutant) -> SourceEdit:
        edit = mutant.edit
        module = _module_of(self._cell, mutant.file)
        return SourceEdit(module, edit.start, edit.end, edit.text)


def _unrun(
    mutants: Sequence[SourceMutant], lines: Mapping[str, frozenset[int]]
) -> list[UnrunEntry]:
    """By file and function, in their order."""
    run: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    unrun: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for one in mutants:
        if is_in_function(one):
            into = run if _is_run(one, lines) else unrun
            into[one.file, one.edit.scope].add(one.edit.lines[0])
    return [
        UnrunEntry(file, scope, tuple(sorted(found)), is_whole=(file, scope) not in run)
        for (file, scope), found in sorted(
            unrun.items(), key=lambda item: (item[0][0], min(item[1]))
        )
    ]
