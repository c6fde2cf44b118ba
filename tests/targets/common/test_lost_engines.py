"""An engine that is lost in one scenario is a line of the gate, and the others are judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Plan
from racegate.jobs.foreign.releases import OpenedEngine
from racegate.jobs.stopping import TerminatedError
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.server import ServerLost
from racegate.targets.common.wire import ReleaseRun
from small_engine import Wait
from small_release import SmallReleases

NAMES = ("first", "second", "third")
SMALL = 'schema = 1\nname = "{}"\ntitle = "t"\n\n[[requests]]\nname = "A"\nprompt_len = 1\n'
SMALL += "max_tokens = 1\naccepts = [1]\n"


class Lost(SmallReleases):
    """The engine is gone in the second scenario. starts: how often it can be started"""

    def __init__(self, wait: Wait, *, starts: int = 9) -> None:
        super().__init__(wait)
        self.starts = starts

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        if scenario.name == "second":
            raise ServerLost("the process of the engine ended")
        return super().run(scenario, plan)


def gate(releases: Lost, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[int, list[str]]:
    """The exit code of a gate over three scripts, and their verdicts."""
    monkeypatch.chdir(folder)
    (folder / "scripts").mkdir()
    for name in NAMES:
        Path("scripts", f"{name}.toml").write_text(SMALL.format(name))

    def opened(cell: object, **options: object) -> object:
        if len(releases.cells) == releases.starts:
            raise BadInput("the engine did not start: no memory")
        return releases(cell, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", opened)
    command = ["vllm", "gate", "--scenarios", "scripts", "--json", "out.json", "--log", "log"]
    command += ["--workers", "1"]
    done = CliRunner().invoke(app, [*command, "--release", "1.0"])
    if not Path("out.json").exists():
        return done.exit_code, []
    results = json.loads(Path("out.json").read_text())["results"]
    return done.exit_code, [f"{one['verdict']} {one['message']}".strip() for one in results]


GONE = "INCONCLUSIVE the process of the engine ended"


@pytest.mark.parametrize(
    ("wait", "code", "other"), [(Wait.BEFORE, 3, "PROVED"), (Wait.BEHIND, 1, "DIVERGENT")]
)
def test_the_others_are_judged_on_an_engine_that_is_started_anew(
    wait: Wait, code: int, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    releases = Lost(wait)
    assert gate(releases, monkeypatch, tmp_path) == (code, [other, GONE, other])
    assert len(releases.cells) == 2


def test_one_that_does_not_start_anew_is_a_line_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "INCONCLUSIVE the engine did not start: no memory"
    releases = Lost(Wait.BEFORE, starts=1)
    assert gate(releases, monkeypatch, tmp_path) == (3, ["PROVED", GONE, said])


class Stopped(Lost):
    """Somebody ends the gate while a scenario runs under a hold. during: which
    closed_by: what ended the engine
    """

    def __init__(self, stop: KeyboardInterrupt, during: str = NAMES[0]) -> None:
        super().__init__(Wait.BEHIND)
        self.stop = stop
        self.during = during
        self.closed_by: BaseException | None = None

    @contextmanager
    def __call__(self, cell: EngineCell, **options: Any) -> Iterator[OpenedEngine]:
        with super().__call__(cell, **options) as opened:
            try:
                yield opened
            except BaseException as error:
                self.closed_by = error
                raise

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        if plan.holds and scenario.name == self.during:
            raise self.stop
        return super().run(scenario, plan)


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (TerminatedError(), 143)])
def test_a_stop_ends_the_gate_and_its_engine(
    stop: KeyboardInterrupt, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    releases = Stopped(stop)
    assert gate(releases, monkeypatch, tmp_path) == (code, [])
    assert releases.scenarios == ["first"], "no other scenario is begun"
    assert releases.closed_by is stop, "so that its processes are killed, not waited for"


def test_a_stopped_gate_writes_what_it_had_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    releases = Stopped(TerminatedError(), during="third")
    left = "INCONCLUSIVE not judged: the gate was stopped"
    assert gate(releases, monkeypatch, tmp_path) == (143, ["DIVERGENT", GONE, left])
