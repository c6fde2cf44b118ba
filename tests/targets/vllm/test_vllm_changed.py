"""`--changed`: which scenarios run what a change has changed, and what is told of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.exit_code import ExitCode
from racegate.interpose.outcome import Ending, Plan
from racegate.jobs.foreign.changes import ChangedPlace, changed_runs, places_of
from racegate.jobs.foreign.releases import OpenedEngine
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.client import RUN_S
from racegate.targets.common.wire import ReleaseRun, SourceOptions
from small_engine import Wait
from small_release import SmallReleases, cached_release

RUNNER = """\
import os

LIMIT = 3


class Runner:
    def step(self, rows):
        if rows:
            self.run(
                rows,
                LIMIT,
            )
        else:
            self.skip()
        return rows

    def start(self):
        self.rows = []
"""
STEP = ("Runner.step", (8, 15))


def places(after: str) -> list[tuple[tuple[int, int], str]]:
    return [(one.lines, one.scope) for one in dict.fromkeys(places_of("runner.py", RUNNER, after))]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("                LIMIT,", "                LIMIT + 1,", [((9, 12), "Runner.step")]),
        ("self.skip()", "self.skip(1)", [((14, 14), "Runner.step")]),
        ("        return rows", "        self.n = 1\n        return rows", [((14, 14), STEP[0])]),
        ("LIMIT = 3", "LIMIT = 4", [((3, 3), "")]),
        ("        self.rows = []", "        self.rows = [1]", [((18, 18), "Runner.start")]),
        ("import os\n", "import os  # for paths\n\n", []),
        ("if rows:", "if not rows:", [((8, 8), "Runner.step")]),
    ],
)
def test_a_change_is_in_the_statement_of_the_base_that_is_no_more(
    old: str, new: str, found: list[tuple[tuple[int, int], str]]
) -> None:
    assert places(RUNNER.replace(old, new, 1)) == found


@given(st.integers(0, len(RUNNER.splitlines()) - 1))
def test_whatever_line_is_dropped_a_place_is_found_unless_nothing_changes(dropped: int) -> None:
    lines = RUNNER.splitlines()
    rest = "\n".join([*lines[:dropped], *lines[dropped + 1 :]])
    assert bool(places(rest)) == bool(lines[dropped].strip())


def test_what_no_scenario_runs_is_told_and_what_only_the_start_may_run_chooses_all() -> None:
    known = {
        "some": {"runner.py": frozenset({7, 8, 9, 10, 15})},
        "none": {"runner.py": frozenset({7, 8, 14, 15})},
    }
    run = ChangedPlace("runner.py", (9, 12), *STEP)
    other = ChangedPlace("runner.py", (11, 11), *STEP)
    start = ChangedPlace("runner.py", (18, 18), "Runner.start", (18, 18))
    module = ChangedPlace("runner.py", (3, 3))
    chosen = changed_runs([run], known)
    assert (chosen.names, chosen.everywhere, chosen.unrun) == (("some",), (), ())
    chosen = changed_runs([run, other], known)
    assert (chosen.names, chosen.unrun) == (("some",), (other,))
    for place in (start, module):
        chosen = changed_runs([run, place], known)
        assert (chosen.names, chosen.everywhere) == (("some", "none"), (place,))


class TracedReleases(SmallReleases):
    """Releases whose scenarios run one line each. lines: by scenario"""

    def __init__(self, lines: dict[str, int]) -> None:
        super().__init__(Wait.BEFORE)
        self.lines = lines
        self.traced: list[str] = []

    @contextmanager
    def __call__(
        self,
        cell: EngineCell,
        *,
        log: Path | None = None,
        run_s: float = RUN_S,
        count: int = 1,
    ) -> Iterator[OpenedEngine]:
        with super().__call__(cell, log=log, run_s=run_s, count=count):
            engine = SimpleNamespace(start_s=0.0, cpu_s=0.0, run=self.trace)
            yield OpenedEngine(cell, self, engine, dict)  # type: ignore[arg-type]

    def trace(self, scenario: Scenario, plan: Plan, *, sources: SourceOptions) -> ReleaseRun:
        self.traced.append(scenario.name)
        first = self.lines[scenario.name]  # 0: the run does not end in time
        lines = {"runner.py": (first, 15)} if sources.traces and first else {}
        return ReleaseRun(ending=Ending.FINISHED, lines=lines)


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a checkout and of its scripts; returns its runner's source."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site = cached_release(tmp_path / "cache", "1.0")
    Path("scripts").mkdir()
    for folder in (site, tmp_path):
        Path(folder, "vllm").mkdir()
        Path(folder, "vllm", "__init__.py").write_text("")
        Path(folder, "vllm", "runner.py").write_text(RUNNER)
    for name in ("runs", "skips"):
        Path("scripts", f"{name}.toml").write_text(
            f'schema = 1\nname = "{name}"\ntitle = "t"\n\n[[requests]]\nname = "A"\n'
            "prompt_len = 1\nmax_tokens = 1\naccepts = [1]\n"
        )
    return tmp_path / "vllm" / "runner.py"


def gate(releases: SmallReleases, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", releases)
    command = ["vllm", "gate", "--scenarios", "scripts", "--release", "1.0", "--path", "."]
    return CliRunner().invoke(app, [*command, "--changed", *options])


def test_only_scenarios_that_run_the_change_are_judged_and_lines_are_kept(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = TracedReleases({"runs": 9, "skips": 14})
    checkout.write_text(RUNNER.replace("LIMIT,", "LIMIT + 1,"))
    done = gate(releases, monkeypatch, "--against", "1.0")
    assert done.exit_code == ExitCode.CLEAN, done.output
    assert set(releases.scenarios) == {"runs"} and releases.traced == ["runs", "skips"]
    assert len(releases.cells) == 2, "one engine for lines and values of the base"
    assert "1 scenario of 2 run it" in done.output
    assert "not judged, because they run nothing of it: skips" in done.output
    gate(releases, monkeypatch, "--against", "1.0")
    assert len(releases.traced) == 2
    checkout.write_text(RUNNER.replace("LIMIT = 3", "LIMIT = 4"))
    releases.scenarios.clear()
    assert "runner.py:3" in gate(releases, monkeypatch, "--against", "1.0").output
    assert set(releases.scenarios) == {"runs", "skips"}


def test_what_a_run_that_does_not_end_runs_is_not_known_and_not_kept(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = TracedReleases({"runs": 9, "skips": 0})
    checkout.write_text(RUNNER.replace("LIMIT,", "LIMIT + 1,"))
    done = gate(releases, monkeypatch, "--against", "1.0")
    assert done.exit_code == ExitCode.BAD_INPUT and "what scenario skips runs" in done.output
    releases.lines["skips"] = 14
    again = gate(releases, monkeypatch, "--against", "1.0")
    assert again.exit_code == ExitCode.CLEAN and releases.traced == ["runs", "skips", "skips"]


def test_a_gate_that_has_nothing_to_judge_says_why(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = TracedReleases({"runs": 9, "skips": 9})
    same = gate(releases, monkeypatch, "--against", "1.0")
    assert same.exit_code == ExitCode.CLEAN and "no Python of vLLM 1.0" in same.output
    checkout.write_text(RUNNER.replace("self.skip()", "self.skip(1)"))
    unrun = gate(releases, monkeypatch, "--against", "1.0")
    assert unrun.exit_code == ExitCode.INCONCLUSIVE
    assert "runner.py:14 in Runner.step" in unrun.output and not releases.scenarios
    alone = gate(releases, monkeypatch)
    assert alone.exit_code == ExitCode.BAD_INPUT and "give --against too" in alone.output
