"""The job: mutants of a source, each judged in a child, in parallel, resumable, by seed."""

from __future__ import annotations

import gc
import importlib
import os
import random
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from racegate.history.breakage import Caught
from racegate.history.finding import Verdict
from racegate.jobs.pools.pool import Task
from racegate.measure.evaluation.source.child import ChildResult, Say, in_a_child
from racegate.measure.evaluation.source.exchange import exchange, import_anew
from racegate.measure.evaluation.source.kept import KeptResults, state_of
from racegate.measure.evaluation.source.pooled import pooled
from racegate.measure.evaluation.source.recording import OnDone, reach_of
from racegate.measure.evaluation.source.results import (
    SourceFate,
    SourceMutant,
    SourceReport,
    SourceResult,
    SourceSpec,
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
            return _result(mutant, SourceFate.UNREACHED)
        killers = self._killers.setdefault(mutant.file, {})
        names = [name for name in reversed(killers) if name in task.judges]
        names += [name for name in task.judges if name not in killers]
        heard = in_a_child(
            partial(_judge_mutant, self._source, self._look, mutant, names), self._look.limits
        )
        result = result_of(mutant, heard)
        if result.fate is SourceFate.KILLED:
            killers.pop(result.by, None)
            killers[result.by] = None
        return result

    def end(self) -> None:
        """There is nothing left to say."""


def make_worker(source: str, number: int) -> SourceWorker:
    """In a worker process; every worker is like the other. Children share what is here now."""
    found = find_source(source)
    look = look_of(found)
    os.chdir(ROOT)
    look.prepare()
    gc.collect()
    gc.freeze()
    return SourceWorker(found, look)


def _judge_mutant(
    source: Source, look: MutantJudge, mutant: SourceMutant, names: Sequence[str], say: Say
) -> None:
    """In a child."""
    path = ROOT / mutant.file
    before = path.read_bytes()
    after = mutant.edit.apply(before)
    module = module_of(mutant.file)
    if not exchange(importlib.import_module(module), before, after):
        say(f"at {names[0]}")
        with Caught("importing", through=()) as caught:
            look = _look_anew(source, module, path, after)
        if caught.breakage is not None:
            say(f"found {caught.breakage.error} when it was imported")
            return
    look.judge(names, say)
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
                return _result(mutant, SourceFate.KILLED, by=at, how=what, cpu_s=heard.cpu_s)
    if heard.is_timeout:
        return _result(mutant, SourceFate.KILLED, by=at, how="no end", cpu_s=heard.cpu_s)
    if os.WIFSIGNALED(heard.status):
        how = f"signal {os.WTERMSIG(heard.status)}"
        return _result(mutant, SourceFate.KILLED, by=at, how=how, cpu_s=heard.cpu_s)
    if heard.status or heard.lines[-1:] != ["end"]:
        raise BrokenHarnessError(f"{mutant.name}: its process ended with {heard.status} at '{at}'")
    how, _, by = undecided.partition(" ")
    fate = SourceFate.INCONCLUSIVE if how == Verdict.INCONCLUSIVE else SourceFate.SURVIVED
    return _result(mutant, fate, by=by, how=how, cpu_s=heard.cpu_s)


def _result(
    mutant: SourceMutant, fate: SourceFate, *, by: str = "", how: str = "", cpu_s: float = 0.0
) -> SourceResult:
    return SourceResult(
        key=mutant.key,
        file=mutant.file,
        scope=mutant.edit.scope,
        line=mutant.edit.lines[0],
        operator=mutant.edit.operator,
        before=mutant.before,
        after=mutant.after,
        fate=fate,
        by=by,
        how=how,
        cpu_s=round(cpu_s, 2),
    )


def chosen(mutants: Sequence[SourceMutant], *, sample: int | None, seed: int) -> list[SourceMutant]:
    """All, or so many of them by seed: each mutant has a place of its own in the draw, so that a
    larger sample contains a smaller one, and an edit elsewhere moves nothing.
    """
    if sample is None:
        return list(mutants)
    ranked = sorted(mutants, key=lambda one: random.Random(f"{seed} {one.key}").random())
    kept = {id(one) for one in ranked[:sample]}
    return [one for one in mutants if id(one) in kept]


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
    mutants = chosen(every, sample=asked.sample, seed=asked.seed)
    state = state_of(source)
    kept = KeptResults(asked.keep, state, equivalents)
    left = list({one.key: one for one in mutants if kept.result(one) is None}.values())
    done = count(len(mutants) - len(left))
    on_done(next(done), len(mutants), source.name)
    if left:
        reach = reach_of(source, asked.keep, workers=workers, on_done=on_done)
        tasks = [
            Task(name=one.file, content=SourceTask(mutant=one, judges=tuple(reach.judges(one))))
            for one in left
        ]
        make = partial(make_worker, source.name)
        for result in pooled(make, tasks, workers=workers, what="mutants judged"):
            kept.add(result)
            on_done(next(done), len(mutants), result.file)
    return SourceReport(
        source=source.name,
        total=len(every),
        sample=asked.sample,
        seed=asked.seed,
        results=tuple(equivalents.applied(one, kept.known(one)) for one in mutants),
    )
