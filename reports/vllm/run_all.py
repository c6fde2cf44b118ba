"""Judges every scenario of vLLM in every release, runner and cache mode, and writes the page.

    python reports/vllm/run_all.py [--remove] OUT [RELEASE ...]

OUT gets one JSON file per release, runner and cache mode in `cells/`, and README.md. What is there
is kept: an interrupted report goes on with the next scenario. Releases that are not set up are, in
the user's cache directory; --remove deletes those again when their cells are done.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import msgspec
from vllm_cells import CellReport, Conflict, ScenarioReport, read_cell, write_cell
from vllm_page import write_page

import racegate
from racegate.interpose.errors import BadInput
from racegate.scenario.files import load_all_for, scenario_paths
from racegate.scenario.spec import Scenario
from racegate.targets.common.client import Engine
from racegate.targets.common.environment import Environment, cache_folder
from racegate.targets.common.judge import EngineVerdict, judge
from racegate.targets.common.report import change_lines, wrong_lines
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import open_engine
from racegate.targets.vllm.environment import ENGINE, environment_of, set_up
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.wire import Runner, StateMode

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "vllm"
# From the first release that schedules speculative decoding asynchronously, and the one before it.
RELEASES = (
    "0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0", "0.17.1", "0.18.1", "0.19.1",
    "0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.27.1", "0.30.0", "0.32.0",
    "0.33.0",
)  # fmt: skip
_PLACES = re.compile(r"/\S*?/site-packages/|/tmp/\S*?/")
_COUNT = re.compile(r"#\d+$")


def commit_here() -> str:
    """The commit of the racegate that measures, with `-dirty` if its files are others."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    folder = Path(racegate.__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def scenario_report(judged: EngineVerdict, cpu_s: float) -> ScenarioReport:
    """What is committed of one verdict: operations by place, without the run's counts."""
    search = judged.search
    found: dict[tuple[str, str, bool, str], Conflict] = {}
    for one in search.conflicts if search is not None else ():
        first, second = one.finding.first, one.finding.second
        names = (_COUNT.sub("", first.label), _COUNT.sub("", second.label))
        lines = change_lines(judged.told, one.landing) if one.landing is not None else []
        key = (*names, second.is_write, one.effect)
        known = found.get(key)
        found[key] = Conflict(
            first=names[0],
            second=names[1],
            is_write=second.is_write,
            effect=one.effect,
            pairs=one.finding.count + (known.pairs if known is not None else 0),
            landings=one.landings,
            does=known.does if known is not None else tuple(lines),
            holds=known.holds if known is not None else one.landing.holds if one.landing else (),
        )
    return ScenarioReport(
        verdict=judged.verdict,
        steps=judged.told.steps,
        events=judged.told.outcome.events,
        runs=0 if search is None else search.runs,
        is_complete=search is not None and search.is_complete,
        cpu_s=round(cpu_s, 1),
        commit=commit_here(),
        unmet=judged.unmet,
        wrong=tuple(wrong_lines(judged.told)),
        message=_first_line(judged.message),
        not_seen=judged.not_seen,
        conflicts=tuple(found.values()),
    )


def _first_line(text: str) -> str:
    """Pydantic's first line only counts the errors; the second says the first of them."""
    lines = text.strip().splitlines() or [""]
    is_count = "validation error" in lines[0] and len(lines) > 1
    said = " ".join((lines[0], lines[1].strip().partition(" [type=")[0])) if is_count else lines[0]
    return _PLACES.sub("", said)


def judge_cell(environment: Environment, path: Path, cell: Cell, todo: list[Scenario]) -> None:
    """Runs what is missing of a cell on one engine; the file is written after every scenario."""
    report = read_cell(path) or CellReport(
        release=cell.release, runner=cell.runner, mode=cell.mode, python=platform.python_version()
    )
    todo = [scenario for scenario in todo if scenario.name not in report.scenarios]
    if report.cannot or not todo:
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        try:
            with open_engine(environment, runner=cell.runner, mode=cell.mode, log=log) as engine:
                pulses = report.sensitivity or sensitivity_of(engine)
                report = msgspec.structs.replace(report, sensitivity=pulses)
                for scenario in todo:
                    report = _judged(report, engine, scenario, cell)
                    write_cell(path, report)
        except BadInput as error:
            end = log.read_text(errors="replace").strip().rpartition("\n")[2]
            text = str(error) if "message is above" not in str(error) else f"{error}: {end}"
            print(f"{path.stem}: {text}", flush=True)
            write_cell(path, msgspec.structs.replace(report, cannot=_first_line(text)))


def _judged(report: CellReport, engine: Engine, scenario: Scenario, cell: Cell) -> CellReport:
    before = engine.cpu_s
    judged = judge(engine, scenario, cell, sensitivity=report.sensitivity)
    one = scenario_report(judged, engine.cpu_s - before)
    print(f"{cell.release} {cell.runner} {cell.mode} {scenario.name}: {one.verdict}, "
          f"{one.runs} runs, {one.cpu_s} CPU s {one.message}", flush=True)  # fmt: skip
    return msgspec.structs.replace(
        report,
        torch=judged.told.outcome.torch_version or report.torch,
        scenarios=report.scenarios | {scenario.name: one},
    )


def main() -> int:
    """Judges what is named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--remove", action="store_true")
    parser.add_argument("--runner", type=Runner, action="append", help="one of them, not both")
    parser.add_argument("--mode", type=StateMode, action="append", help="some of them")
    parser.add_argument("--scenario", action="append", help="some of them, by name")
    parser.add_argument("--page", action="store_true", help="only the page, from what is there")
    parser.add_argument("out", type=Path)
    parser.add_argument("releases", nargs="*", metavar="RELEASE")
    options = parser.parse_args()
    cells = options.out / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    scenarios = [
        scenario
        for _, scenario in load_all_for("vLLM", scenario_paths(SCENARIOS))
        if scenario.name in (options.scenario or [scenario.name])
    ]
    for release in () if options.page else options.releases or RELEASES:
        todo = [
            (cells / f"{release}-{runner}-{mode}.json", runner, mode)
            for runner, mode in product(options.runner or Runner, options.mode or StateMode)
        ]
        if all(_is_done(path, scenarios) for path, _, _ in todo):
            continue
        was_there = (cache_folder(ENGINE) / release).exists()
        set_up(release, lambda text: print(text, flush=True))
        for path, runner, mode in todo:
            cell = Cell(release=release, runner=runner, mode=mode)
            judge_cell(environment_of(release), path, cell, scenarios)
        if options.remove and not was_there:
            shutil.rmtree(cache_folder(ENGINE) / release)
    write_page(options.out)
    return 0


def _is_done(path: Path, scenarios: list[Scenario]) -> bool:
    report = read_cell(path)
    return report is not None and (
        bool(report.cannot) or all(scenario.name in report.scenarios for scenario in scenarios)
    )


if __name__ == "__main__":
    sys.exit(main())
