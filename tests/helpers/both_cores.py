"""The compiled core and the Python that it was written after, on the same scenarios: traces, every
observation bit by bit, and verdicts have to be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from agreeing import agree
from racegate.check.checker import Checker, Checkers
from racegate.check.forking import ForkedRuns, left_the_same
from racegate.check.sharing import SharedRuns
from racegate.device.virtual.compiled import refused_core, why_python
from racegate.device.virtual.memo import OpMemo
from racegate.explore.dpor import explore
from racegate.explore.generate import generate_holds, seeded
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import Fault
from racegate.history.outcome import RunResult
from racegate.history.schedule import EAGER, Schedule, parse_schedule
from racegate.history.witness import load_witness
from racegate.jobs.generated import drawn
from racegate.scenario.files import load, scenario_paths

SCRIPTS = Path(__file__).parents[2] / "scenarios"
SEED = 34
FAULTY_OF = 4
SHARED_OF = 20
CLASSES = 5


class Compared(msgspec.Struct, kw_only=True):
    """What was made on both. scripts, witnesses, faulty: runs of the tree's own

    scenarios: drawn, so many from the first; runs: of them; stopped: runs that a defect ended
    shared, classes: schedules on shared prefixes, and classes of reductions
    """

    environment: dict[str, str]
    seed: int = SEED
    scripts: int = 0
    witnesses: int = 0
    faulty: int = 0
    scenarios: int = 0
    runs: int = 0
    stopped: int = 0
    shared: int = 0
    classes: int = 0
    differences: list[str] = []


def compare_tree(found: Compared) -> None:
    """All scripts, all witnesses, and all faults on the scripts that they name. Raises ValueError
    where there is nothing to compare.
    """
    if reasons := why_python():
        raise ValueError(f"parts are in Python: {dict(reasons)}")
    checkers = Checkers()
    scripts = {one.name: one for one in map(load, scenario_paths(SCRIPTS))}
    for scenario in scripts.values():
        compare(found, checkers.of(scenario), EAGER, None, f"script {scenario.name}")
        found.scripts += 1
    for path in sorted((SCRIPTS / "witnesses").glob("*.json")):
        witness = load_witness(path)
        fault = None if witness.fault is None else find_fault(witness.fault)
        schedule = parse_schedule(witness.holds)
        compare(found, checkers.of(witness.scenario), schedule, fault, f"witness {path.name}")
        found.witnesses += 1
    for fault in FAULTS:
        for name in fault.scenarios:
            compare(found, checkers.of(scripts[name]), EAGER, fault, f"{fault.name} on {name}")
            found.faulty += 1


def compare_drawn(found: Compared, index: int) -> None:
    """The drawn scenario of that number."""
    checker = Checker(drawn(SEED, index))
    engine = checker.scenario.engine
    picks = (seeded(SEED, index * 1_000_003 + number) for number in range(4))
    holds = [generate_holds(pick, layout=engine.layout, ranks=engine.ranks) for pick in picks]
    fault = None if index % FAULTY_OF else FAULTS[index // FAULTY_OF % len(FAULTS)]
    where = f"scenario {index} of seed {SEED}"
    for schedule in (EAGER, holds[0]):
        compare(found, checker, schedule, fault, where)
        found.runs += 1
    if index % SHARED_OF == 1 and engine.ranks == 1:
        compare_searches(found, checker, holds, where)
    found.scenarios = index + 1


def compare(
    found: Compared, checker: Checker, schedule: Schedule, fault: Fault | None, where: str
) -> None:
    """One run on both, judged."""
    fast = checker.execute(schedule=schedule, fault=fault)
    with refused_core():
        plain = checker.execute(schedule=schedule, fault=fault)
    found.stopped += fast.stopped is not None
    if repr(fast.stopped) != repr(plain.stopped) or fast.trace != plain.trace:
        found.differences.append(f"{where}: what was done")
    elif fast.stopped is None and not left_the_same(fast, plain):
        found.differences.append(f"{where}: what was observed")
    judged = [checker.judge(run, schedule=schedule, fault=fault) for run in (fast, plain)]
    if not agree(judged):
        found.differences.append(f"{where}: the verdict")


def compare_searches(found: Compared, checker: Checker, holds: list[Schedule], where: str) -> None:
    """Schedules that share what they have in common, and the first classes of a reduction."""
    fast = list(searched(checker, holds))
    with refused_core():
        plain = list(searched(checker, holds))
    if len(fast) != len(plain) or not all(map(agree, zip(fast, plain, strict=True))):
        found.differences.append(f"{where}: the verdicts of a search")
    found.shared += len(holds)
    found.classes += len(fast) - len(holds)


def searched(checker: Checker, holds: list[Schedule]) -> Iterator[RunResult]:
    """What both kinds of search say."""
    runs = SharedRuns(checker)
    for schedule in holds:
        yield runs.run(schedule)
    forked = ForkedRuns(checker, None, OpMemo())
    for judged in explore(forked.run, classes_max=CLASSES).results:
        yield judged.result
