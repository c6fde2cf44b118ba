"""A scenario as a test: run as it is marked, judged, and reported so that it can be shown again."""

from __future__ import annotations

import hashlib
import io
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Any, NamedTuple

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.check.repro.minimise import as_found
from racegate.check.repro.public import NotProvedError, assert_verdict
from racegate.check.repro.search import BUDGET, search
from racegate.cli.app import app
from racegate.cli.options import ExecutionDevice, Explore, site_of
from racegate.cli.testing.foreign import run_foreign
from racegate.cli.testing.settings import TrialSettings, attached, report_file
from racegate.device.cuda.driver import NoCudaError
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.faults.catalogue import find_fault
from racegate.history.finding import signature_of
from racegate.history.outcome import RunResult
from racegate.history.schedule import Schedule, parse_schedule
from racegate.history.witness import load_witness, save
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load
from racegate.scenario.spec import OwnScenario
from racegate.scenario.untrusted.text import printable_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is run, and what has to come of it.

    source: file of the scenario, if it has one; adapter: what starts an engine of one's own
    """

    scenario: OwnScenario
    source: str
    explore: Explore = Explore.EAGER
    fault: str | None = None
    holds: tuple[str, ...] = ()
    budget: int = BUDGET
    verdict: tuple[str, ...] = ("PROVED", "BENIGN")
    adapter: tuple[str, ...] = ()


class JudgedTrial(NamedTuple):
    """A trial with the run that came of it."""

    trial: Trial
    result: RunResult


def try_marked(item: pytest.Item, marker: pytest.Mark, settings: TrialSettings) -> JudgedTrial:
    """What a marker asks for, run; or the witness that is to be replayed instead. Fails the test
    for a marker or a file that cannot be used.
    """
    wrong = ""
    try:
        trial = _trial(item, *marker.args, **marker.kwargs)
        if settings.replay is not None:
            trial = _replayed(settings.replay, trial)
    except (ValueError, BadInputError) as error:
        wrong = str(error)
    except TypeError as error:
        wrong = str(error).partition("() ")[2]
    if wrong:
        pytest.fail(f"@pytest.mark.racegate: {wrong}", pytrace=False)
    return run_trial(item, trial, settings)


def _replayed(file: Path, marked: Trial) -> Trial:
    witness = load_witness(file)
    return Trial(
        scenario=witness.scenario,
        source=str(file),
        fault=witness.fault,
        holds=witness.holds,
        verdict=marked.verdict,
        adapter=marked.adapter,
    )


def _trial(item: pytest.Item, scenario: str | Path | OwnScenario, **options: Any) -> Trial:
    """The arguments of the marker. A path is one beside the test, or below the root."""
    source = ""
    if not isinstance(scenario, OwnScenario):
        beside = item.path.parent / scenario
        path = beside if beside.exists() else item.config.rootpath / scenario
        scenario, source = load(path), str(path)
    given = Trial(scenario=scenario, source=source, **options)
    if given.holds and given.explore != Explore.EAGER:
        raise ValueError("holds say which schedule to run: leave explore out")
    if given.adapter and given.fault is not None:
        raise ValueError("faults are seeded into racegate's own engine: leave adapter out")
    parse_schedule(list(given.holds))
    if given.fault is not None:
        find_fault(given.fault)
    return replace(
        given,
        explore=Explore(given.explore),
        verdict=(given.verdict,) if isinstance(given.verdict, str) else given.verdict,
    )


def run_trial(item: pytest.Item, trial: Trial, settings: TrialSettings) -> JudgedTrial:
    """The run, with what a JUnit file says of it. Skips the test where there is no GPU."""
    schedule = parse_schedule(list(trial.holds))
    if trial.adapter:
        result = run_foreign(
            trial.adapter,
            trial.scenario,
            file=trial.source or "FILE",
            schedule=schedule if trial.holds else None,
            is_searched=trial.explore is Explore.LADDER,
        )
    else:
        result = _run_here(trial, schedule, settings)
    item.user_properties += _properties(trial, result, settings)
    return JudgedTrial(trial, result)


def _run_here(trial: Trial, schedule: Schedule, settings: TrialSettings) -> RunResult:
    """On racegate's own engine. A search steps the virtual device."""
    site = _site(settings)
    fault = None if trial.fault is None else find_fault(trial.fault)
    checker = Checker(trial.scenario, replay=_command(trial), cuda=site)
    if trial.explore is Explore.EAGER or site is not None:
        return checker.run(schedule=schedule, fault=fault, is_audited=True)
    return search(checker, fault=fault, budget=trial.budget, seed=settings.seed, is_audited=True)


def _site(settings: TrialSettings) -> CudaSite | None:
    try:
        return site_of(ExecutionDevice(settings.device), Pacing.EAGER)
    except NoCudaError as error:
        pytest.skip(str(error))


def _command(trial: Trial) -> str:
    is_witness = trial.source.endswith(".witness.json")
    return join(["racegate", "replay" if is_witness else "run", trial.source or "FILE"])


def _properties(
    trial: Trial, result: RunResult, settings: TrialSettings
) -> list[tuple[str, object]]:
    """Name and value, as JUnit's properties."""
    content = msgspec.json.encode(trial.scenario, order="sorted")
    said: dict[str, object] = {
        "scenario": result.scenario,
        "scenario_hash": hashlib.sha256(content).hexdigest()[:16],
        "device": result.device,
        "seed": settings.seed,
        "verdict": str(result.verdict),
        "schedules": result.stats.schedules,
        "signature": signature_of(result.findings) or "",
    }
    if result.search is not None and result.search.classes is not None:
        said["classes"] = result.search.classes
    return [(f"racegate.{name}", value) for name, value in said.items()]


def check_verdict(item: pytest.Item, tried: JudgedTrial, settings: TrialSettings) -> None:
    """Fails the test if the verdict is another, with the cause, and files that show it again."""
    wrong = ""
    try:
        assert_verdict(tried.result, *tried.trial.verdict)
    except NotProvedError as error:
        wrong = printable_lines(str(error))
    if not wrong:
        return
    # A witness is of racegate's own engine; another one's finding has its own line to run again.
    lines: list[str] = []
    files: list[Path] = []
    if settings.report_dir is not None and tried.result.findings and not tried.trial.adapter:
        lines, files = _reported(item, tried, settings.report_dir)
    if lines := [*lines, *attached(item, wrong, files)]:
        item.add_report_section("call", "racegate", "\n".join(lines))
    pytest.fail(wrong, pytrace=False)


def _reported(item: pytest.Item, tried: JudgedTrial, folder: Path) -> tuple[list[str], list[Path]]:
    """Writes a witness and, of a race, a page with its picture. What a reader does with them, and
    the files.
    """
    witness = report_file(item, folder, ".witness.json")
    page = report_file(item, folder, ".html")
    trial, scenario = tried.trial, tried.trial.scenario
    fault = None if trial.fault is None else find_fault(trial.fault)
    found = as_found(scenario, tried.result, fault, title=scenario.title, seed=scenario.seed)
    save(found, witness)
    lines = [f"replay: {join(['racegate', 'replay', str(witness)])}"]
    lines += [f"or: {join(['pytest', item.nodeid, '--racegate-replay', str(witness)])}"]
    # As the command draws it: a failure that is no race has no picture.
    said = io.StringIO()
    with suppress(SystemExit), redirect_stdout(said), redirect_stderr(said):
        app(["explain", str(witness), "--html", str(page)], standalone_mode=False)
    lines += [f"picture: {page}"] if page.exists() else []
    return lines, [file for file in (page, witness) if file.exists()]
