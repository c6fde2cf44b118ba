"""The job: mutants of a source, each judged in a child, in parallel, resumable, by seed."""

from __future__ import annotations

import gc
import importlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from racegate.history.breakage import Caught
from racegate.history.finding import Verdict
from racegate.jobs.pools.pool import Task
from racegate.measure.evaluation.source.child import ChildResult, Say, in_a_child
from racegate.measure.evaluation.source.exchange import (
    compile_with,
    exchange,
    forget_results,
    import_anew,
    lay_over,
)
from racegate.measure.evaluation.source.kept import KeptResults, state_of
from racegate.measure.evaluation.source.reach import UNRUN, LineReach, in_turns, script_features
from racegate.measure.evaluation.source.recording import OnDone, pooled, reach_of
from racegate.measure.evaluation.source.results import (
    SourceFate,
    SourceMutant,
    SourceReport,
    SourceResult,
    SourceSpec,
    fate_result,
    load_equivalents,
)
from racegate.measure.evaluation.source.sources import (
    ROOT,
    MutantJudge,
    Source,
    files_of,
    find_source,
    look_of,
    module_of,
    mutants_of,
)
from racegate.scenario.errors import BrokenHarnessError
from racegate.scenario.strict import StrictStruct

# What the gate calls no pass and no finding.
UNDECIDED = frozenset({Verdict.INCONCLUSIVE, Verdict.BENIGN})


class SourceTask(StrictStruct, frozen=True):
    """A mutant, and who executes its line, the quickest first."""

    mutant: SourceMutant
    judges: tuple[str, ...]


class SourceWorker:
    """Judges mutants, each in a child. What killed the last one of a file comes first."""

    def __init__(self, source: Source, look: MutantJudge) -> None:
        self._source = source
        self._look = look
        self._killers: dict[str, dict[str, None]] = {}

    def work(self, task: SourceTask) -> SourceResult:
        """One mutant."""
        mutant = task.mutant
        if not task.judges:
            return fate_result(mutant, SourceFate.UNREACHED)
        killers = self._killers.setdefault(mutant.file, {})
        names = [name for name in reversed(killers) if name in task.judges]
        names += [name for name in task.judges if name not in killers]
        with tempfile.TemporaryDirectory(prefix="racegate-mutant-") as folder:
            judging = _Judging(self._source, self._look, mutant, names, Path(folder))
            heard = in_a_child(judging.judge, self._look.limits)
        result = result_of(mutant, heard)
        if result.fate is SourceFate.KILLED:
            killers.pop(result.by, None)
            killers[result.by] = None
        return result


def make_worker(source: str, number: int) -> SourceWorker:
    """In a worker process; every worker is like the other. Children share what is here now."""
    found = find_source(source)
    look = look_of(found)
    os.chdir(ROOT)
    look.prepare()
    gc.collect()
    gc.freeze()
    return SourceWorker(found, look)


class _Judging(NamedTuple):
    """One mutant in a child. names: of its judges; folder: for what processes are given"""

    source: Source
    look: MutantJudge
    mutant: SourceMutant
    names: Sequence[str]
    folder: Path

    def judge(self, say: Say) -> None:
        path = ROOT / self.mutant.file
        before = path.read_bytes()
        after = self.mutant.edit.apply(before)
        if self.source.elsewhere:
            give = compile_with if path.suffix == ".c" else lay_over
            give(ROOT, self.mutant.file, after, self.folder)
            forget_results()
        look = self.look
        if path.suffix != ".c":
            module = module_of(self.mutant.file)
            if not exchange(importlib.import_module(module), before, after):
                say(f"at {self.names[0]}")
                with Caught("importing", through=()) as caught:
                    look = _look_anew(self.source, module, path, after)
                if caught.breakage is not None:
                    say(f"found {caught.breakage.error} when it was imported")
                    return
        look.judge(self.names, say)
        say("end")


def _look_anew(source: Source, module: str, path: Path, after: bytes) -> MutantJudge:
    """The judge of a project in which the mutant was imported. What cannot be imported is dead."""
    import_anew(module, path, after, beside=ROOT / "tests")
    importlib.import_module(module)
    sources = importlib.import_module("racegate.measure.evaluation.source.sources")
    look: MutantJudge = sources.look_of(sources.find_source(source.name))
    return look


def result_of(mutant: SourceMutant, heard: ChildResult) -> SourceResult:
    """What a child's lines come to. Raises BrokenHarnessError if it ended for no known reason."""
    at, undecided = "", ""
    for kind, _, what in (line.partition(" ") for line in heard.lines):
        match kind:
            case "at":
                at = what
            case "found" if what in UNDECIDED:
                undecided = undecided or f"{what} {at}"
            case "found":
                return fate_result(mutant, SourceFate.KILLED, by=at, how=what, cpu_s=heard.cpu_s)
    if heard.is_timeout:
        return fate_result(mutant, SourceFate.KILLED, by=at, how="no end", cpu_s=heard.cpu_s)
    if os.WIFSIGNALED(heard.status):
        how = f"signal {os.WTERMSIG(heard.status)}"
        return fate_result(mutant, SourceFate.KILLED, by=at, how=how, cpu_s=heard.cpu_s)
    if heard.status or heard.lines[-1:] != ["end"]:
        raise BrokenHarnessError(f"{mutant.name}: its process ended with {heard.status} at '{at}'")
    how, _, by = undecided.partition(" ")
    fate = SourceFate.INCONCLUSIVE if how == Verdict.INCONCLUSIVE else SourceFate.SURVIVED
    return fate_result(mutant, fate, by=by, how=how, cpu_s=heard.cpu_s)


def mutate_source(
    asked: SourceSpec,
    *,
    workers: int,
    on_done: OnDone = lambda done, total, what: None,
) -> SourceReport:
    """Judges mutants of a source. on_done: parts are recorded, then mutants judged

    Raises StoppedError if it is told to stop, EquivalentError for an entry that is out of date.
    """
    source = find_source(asked.source)
    equivalents = load_equivalents(asked.equivalent)
    every = [mutant for path in files_of(source) for mutant in mutants_of(path)]
    equivalents.check(every)
    kept = KeptResults(asked.keep, state_of(source), equivalents)
    reach_now = cache(lambda: reach_of(source, asked.keep, workers=workers, on_done=on_done))
    groups = {"": every} if asked.per_feature is None else _by_feature(every, reach_now())
    most = asked.per_feature or asked.sample or len(every)
    draw = partial(
        in_turns, most=most, seed=asked.seed, matters=lambda one: not equivalents.of(one)
    )
    drawn = {name: draw(some) for name, some in groups.items()}
    mutants = [one for some in drawn.values() for one in some]
    left = list({one.key: one for one in mutants if kept.result(one) is None}.values())
    done = count(len(mutants) - len(left))
    on_done(next(done), len(mutants), source.name)
    if left:
        reach = reach_now()
        tasks = [SourceTask(mutant=one, judges=judges_of(one, source, reach)) for one in left]
        named = [Task(name=task.mutant.file, content=task) for task in tasks]
        make = partial(make_worker, source.name)
        for result in pooled(make, named, workers=workers, what="mutants judged"):
            kept.add(result)
            on_done(next(done), len(mutants), result.file)
    found = [
        msgspec.structs.replace(equivalents.applied(one, kept.known(one)), feature=feature)
        for feature, some in drawn.items()
        for one in some
    ]
    return SourceReport(
        source=source.name,
        total=len(every),
        sample=asked.sample,
        seed=asked.seed,
        per_feature=asked.per_feature,
        results=tuple(sorted(found, key=lambda one: (one.file, one.line, one.key))),
        failing=reach_now().failing if left else (),
    )


def judges_of(mutant: SourceMutant, source: Source, reach: LineReach) -> tuple[str, ...]:
    """Who executes its statement, the quickest first; then those whose processes may."""
    return (*reach.judges(mutant), *source.elsewhere)


def _by_feature(mutants: Sequence[SourceMutant], reach: LineReach) -> dict[str, list[SourceMutant]]:
    """By the feature that the line belongs to; those that nobody runs are of none."""
    features = script_features(ROOT / "scenarios")
    groups: dict[str, list[SourceMutant]] = defaultdict(list)
    for one in mutants:
        judges = reach.judges(one)
        groups[features.of(judges) if judges else UNRUN].append(one)
    return dict(sorted(groups.items()))
