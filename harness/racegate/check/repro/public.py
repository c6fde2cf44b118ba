"""What `import racegate` offers: scenarios to load or build, to run, search and replay.

Every example below is a test.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from racegate.check.checker import Checker
from racegate.check.repro.explain import Explanation, explain_failure
from racegate.check.repro.minimise import minimise as minimise_case
from racegate.check.repro.minimise import witness_of
from racegate.check.repro.replay import replay as replay_witness
from racegate.check.repro.search import BUDGET
from racegate.check.repro.search import search as search_schedules
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import Verdict as Verdict
from racegate.history.outcome import RunResult as RunResult
from racegate.history.replayed import Replay
from racegate.history.schedule import parse_schedule
from racegate.history.witness import Witness as Witness
from racegate.history.witness import load_witness
from racegate.history.witness import save as save_file
from racegate.scenario.entries import SCHEMA_VERSION
from racegate.scenario.errors import BadInputError as BadInputError
from racegate.scenario.files import from_keys
from racegate.scenario.files import load as load_file
from racegate.scenario.shipped import shipped_scripts
from racegate.scenario.spec import OwnScenario

# These calls are about our own engine: a scenario comes with its settings.
Scenario = OwnScenario
StrPath = str | os.PathLike[str]
# Which file a scenario came from is not known here.
REPLAY = "racegate run FILE"


class NotProvedError(AssertionError):
    """Raised for another verdict than expected; says which, why, and what shows it again."""


def scripts() -> Path:
    """Returns the folder of the scripts that come with racegate; it contains `witnesses`.

    >>> (racegate.scripts() / "finish_and_condense.toml").is_file()
    True
    """
    return shipped_scripts()


def load(path: StrPath) -> Scenario:
    """Loads the scenario in a TOML file. Raises BadInputError with file, place and reason.

    >>> racegate.load(racegate.scripts() / "stop_token.toml").name
    'stop-token'
    """
    return load_file(Path(path))


def build(*, name: str, title: str = "", **keys: object) -> Scenario:
    """Builds a scenario from the keys that a file would have. Raises BadInputError.

    >>> scenario = racegate.build(
    ...     name="row-moves",
    ...     engine={"draft_len_max": 1},
    ...     requests=[
    ...         {"name": "A", "prompt_len": 1, "max_tokens": 5, "accepts": [2]},
    ...         {"name": "C", "prompt_len": 1, "max_tokens": 2, "accepts": [1], "arrive": 3},
    ...     ],
    ... )
    >>> [request.name for request in scenario.requests]
    ['A', 'C']
    """
    raw = {"schema": SCHEMA_VERSION, "name": name, "title": title or name, **keys}
    return from_keys(raw, source=f"build({name!r})", folder=Path())


def run(scenario: Scenario, *, holds: Iterable[str] = (), fault: str | None = None) -> RunResult:
    """Makes one run and returns it judged by all oracles. Without holds, every operation completes
    when it is issued, and PROVED then holds for every schedule. Raises BadInputError.

    holds: as text, `OPERATION until POINT`; fault: the name of a seeded fault

    >>> racegate.run(scenario).verdict
    <Verdict.PROVED: 'PROVED'>
    >>> faulty = racegate.run(scenario, fault="accepted-copy-after-row-move")
    >>> faulty.verdict, faulty.findings[0].buffer
    (<Verdict.CONFLICT: 'CONFLICT'>, 'accepted_counts_cpu')
    >>> hold = "d2h:accepted_counts@3 until host:condense@4"
    >>> held = racegate.run(scenario, fault="accepted-copy-after-row-move", holds=[hold])
    >>> held.verdict
    <Verdict.DIVERGENT: 'DIVERGENT'>
    """
    schedule = parse_schedule(list(holds))
    return Checker(scenario, replay=REPLAY).run(
        schedule=schedule, fault=_fault(fault), is_audited=True
    )


def search(
    scenario: Scenario, *, fault: str | None = None, budget: int = BUDGET, seed: int = 0
) -> RunResult:
    """Searches schedules if the eager run has a conflict. Returns the first run that goes wrong, or
    the eager run with the verdict of all. Raises BadInputError.

    budget: the most schedules that it runs; seed: of schedules that are drawn

    >>> found = racegate.search(scenario, fault="accepted-copy-after-row-move")
    >>> found.verdict, found.schedule
    (<Verdict.DIVERGENT: 'DIVERGENT'>, ('* until forced',))
    """
    checker = Checker(scenario, replay=REPLAY)
    return search_schedules(checker, fault=_fault(fault), budget=budget, seed=seed, is_audited=True)


def minimise(scenario: Scenario, result: RunResult) -> Witness:
    """Reduces a scenario and its holds to the smallest that fail as the result does. Raises
    ValueError if nothing is wrong in the result.

    >>> witness = racegate.minimise(scenario, found)
    >>> witness.holds
    ('d2h:accepted_counts@C.0 until host:condense@C.1',)
    """
    fault, schedule = _fault(result.fault), parse_schedule(list(result.schedule))
    small = minimise_case(scenario, schedule, fault)
    return witness_of(small, fault, title=scenario.title, seed=scenario.seed)


def save(witness: Witness, path: StrPath) -> None:
    """Writes a witness to a file for `racegate replay` and `racegate explain`. The file's name
    should end in `.witness.json`.

    >>> racegate.save(witness, folder / "row-moves.witness.json")
    """
    save_file(witness, Path(path))


def replay(witness: Witness | StrPath, *, times: int = 1) -> Replay:
    """Runs a witness again. Raises BadInputError for a file that is no witness.

    >>> str(racegate.replay(folder / "row-moves.witness.json").outcome)
    'reproduced'
    """
    given = _witness(witness)
    command = "" if isinstance(witness, Witness) else f"racegate replay {witness}"
    return replay_witness(given, times=times, command=command)


def explain(witness: Witness | StrPath) -> Explanation:
    """Explains why a witness fails: the pair that nothing orders, and the hold that decides.

    >>> race = racegate.explain(witness).race
    >>> race.first, race.second, race.late_wait
    ('d2h:accepted_counts@3', 'host:condense@4', 'edge accepted-landed, waited for in step 4')
    """
    given = _witness(witness)
    schedule = parse_schedule(list(given.holds))
    return explain_failure(Checker(given.scenario), schedule, _fault(given.fault))


def assert_proved(subject: Scenario | RunResult) -> RunResult:
    """Returns the result if its verdict is PROVED or BENIGN. Raises NotProvedError otherwise.

    subject: a result, or a scenario, which is searched first

    >>> racegate.assert_proved(scenario).stats.conflicts
    0
    >>> racegate.assert_proved(found)
    Traceback (most recent call last):
    racegate.NotProvedError: row-moves is DIVERGENT, not PROVED or BENIGN
    """
    result = search(subject) if isinstance(subject, Scenario) else subject
    return assert_verdict(result, Verdict.PROVED, Verdict.BENIGN)


def assert_verdict(result: RunResult, *expected: Verdict | str) -> RunResult:
    """Returns the result if its verdict is one of these. Raises NotProvedError otherwise.

    >>> racegate.assert_verdict(faulty, "CONFLICT").scenario
    'row-moves'
    """
    if result.verdict in expected:
        return result
    wanted = " or ".join(map(str, expected))
    said = [f"{result.scenario} is {result.verdict}, not {wanted}"]
    said += [finding.message for finding in result.findings[:1]]
    said += [f"not exercised: {reason}" for reason in result.unmet]
    said += [breakage.text for breakage in result.breakages]
    said += [f"held: {hold}" for hold in result.schedule]
    said += [f"replay: {finding.replay}" for finding in result.findings[:1] if finding.replay]
    raise NotProvedError("\n".join(said))


def _fault(name: str | None) -> Fault | None:
    return None if name is None else find_fault(name)


def _witness(given: Witness | StrPath) -> Witness:
    return given if isinstance(given, Witness) else load_witness(Path(given))
