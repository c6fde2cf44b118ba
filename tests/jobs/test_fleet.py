"""A fleet of real targets: two revisions, of which one lacks a wait, the guide's adapter as it is,
with a race and dead, and a GPU that is not there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from fleets import fleet_file, revision, toy, toys, two_revisions
from racegate.cli.app import app
from racegate.history.finding import Hazard, Race, Side, Verdict
from racegate.history.schedule import Hold
from racegate.interpose.outcome import Ending
from racegate.jobs.fleet.process import run_commands
from racegate.jobs.fleet.targets import FleetError, load_fleet
from racegate.jobs.foreign.opened import TargetResult
from racegate.jobs.foreign.requests import drawn_requests
from racegate.jobs.foreign.worker import report_of
from racegate.jobs.generated import NOT_RUN
from racegate.scenario.spec import happening
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.landings import LandingRun
from racegate.targets.common.result import result_of
from racegate.targets.common.search import Effect, JudgedRace, LandingSearch
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.common.witnesses.witness import every_witness_of
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from racegate.targets.vllm.witness import EngineWitness
from shown_results import shown_by
from support import IS_NIGHTLY

SCENARIO = happening(drawn_requests(0, 9))
# In its first scenario five requests come, and both defects show.
SEED = 8
GPU = 'name = "card"\ndevice = "gpu"'
DEAD = f'name = "dead"\nadapter = ["{sys.executable}", "-c", "raise SystemExit(7)"]'


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tables of a fleet file, by name."""
    folder = tmp_path_factory.mktemp("targets")
    checkout = two_revisions(folder / "checkout")
    right, wrong = toys(folder)
    return {
        "waiting": revision("waiting", checkout),
        "racing": revision("racing", checkout),
        "right": toy("right", right),
        "wrong": toy("wrong", wrong),
        "dead": DEAD,
        "card": GPU,
    }


def run(file: Path, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """A fleet's exit code and what it says."""
    words = ["fleet", str(file), "--out", str(out), "--seed", str(SEED), "--json", "-", *options]
    result = CliRunner().invoke(app, words)
    return result.exit_code, json.loads(result.stdout)


def shown(said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By target: what of its column does not depend on when it was run, and its signatures."""
    rows = said["matrix"]["rows"]
    return {
        one["name"]: {
            "scenarios": one["scenarios"],
            "verdicts": one["verdicts"],
            "signatures": {
                row["signature"]: (cell["scenario"], cell["hits"])
                for row in rows
                for cell in row["cells"]
                if cell["target"] == one["name"]
            },
        }
        for one in said["matrix"]["targets"]
    }


def test_a_race_is_seen_where_it_is_and_nowhere_else(
    targets: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = ("waiting", "racing", "wrong", "dead", "card")
    file = fleet_file(tmp_path, *(targets[name] for name in names))
    out = tmp_path / "out"
    code, said = run(file, out, "--scenarios", "1", "--gpus", "0")
    found = shown(said)
    racing = "ownership/valid_count_cpu/host:correct"
    assert {name: one["signatures"] for name, one in found.items()} == {
        "waiting": {},
        "racing": {racing: (0, 1)},
        "wrong": {"loss/delivered": (0, 1)},
        "dead": {},
        "card": {},
    }
    assert found["waiting"]["verdicts"] == {"PROVED": 1}
    # The dead one is an error of the harness, which comes before findings.
    assert code == said["exit_code"] == 3
    (dead,) = said["breakages"]
    assert (dead["at"], "code 7" in dead["error"]) == ("scenario 0", True)
    (missed,) = said["missed"]
    assert (missed["target"], "no GPU" in missed["why"]) == ("card", True)
    assert (out / "target.racing" / f"requests-{SEED}-0.toml").is_file()

    listed = CliRunner().invoke(app, ["campaign", "findings", "--store", str(out), "--json", "-"])
    assert shown({"matrix": json.loads(listed.stdout)["targets"]}) == found
    one = ["campaign", "findings", "--store", str(out), "--target", "racing", "--json", "-"]
    (finding,) = json.loads(CliRunner().invoke(app, one).stdout)["findings"]
    assert (finding["signature"], finding["findability"]["hits"]) == (racing, 1)

    # What is done is not done again; what was set aside before is no error of this run.
    code, again = run(file, out, "--scenarios", "1", "--gpus", "0")
    assert (code, shown(again)) == (1, found)


@pytest.mark.skipif(not IS_NIGHTLY, reason="nightly: a minute of revisions and adapters")
def test_more_workers_and_kept_findings_change_nothing(
    targets: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = fleet_file(
        tmp_path, *(targets[name] for name in ("waiting", "racing", "right", "wrong"))
    )
    store = ("--store", str(tmp_path / "store"))
    one = run(file, tmp_path / "one", "--scenarios", "6")
    two = run(file, tmp_path / "two", "--scenarios", "6", "--workers", "2", *store)
    assert (one[0], shown(one[1])) == (two[0], shown(two[1]))
    # An empty folder goes on where the store is.
    _, on = run(file, tmp_path / "three", "--scenarios", "7", *store)
    assert [each["scenarios"] for each in shown(on).values()] == [7, 7, 7, 7]


def test_a_process_that_hangs_is_ended_and_said(tmp_path: Path) -> None:
    ended = run_commands([["--help"]], folder=tmp_path, place=tmp_path, timeout_s=0.01)
    assert (ended.codes, ended.why.startswith("has not ended within 0.01 s")) == ((), True)


def race(buffer: str) -> Race:
    side = Side(
        operation="d2h", label="d2h#1", lane="stream", is_host=False, is_write=True, stack=()
    )
    return Race(
        signature="abc",
        hazard=Hazard.READ_AFTER_WRITE,
        buffer=buffer,
        nbytes=8,
        count=1,
        first=side,
        second=side,
        edge="",
        pairs=(("d2h#1", "host read"),),
    )


def test_of_the_landings_of_a_release_the_worst_is_shown() -> None:
    tokens = {"A": (1, 2)}
    told = ReleaseRun(ending=Ending.FINISHED, delivered=tokens, plain=tokens)

    def conflict(effect: Effect, buffer: str) -> JudgedRace[ReleaseRun]:
        landing = LandingRun(
            holds=(Hold(op=f"d2h {buffer}#1", until="host read"),),
            base=told,
            what=told,
            is_harmful=True,
        )
        found = None if effect is Effect.BENIGN else landing
        return JudgedRace(race=race(buffer), effect=effect, landings=1, landing=found)

    conflicts = [
        conflict(Effect.BENIGN, "a"),
        conflict(Effect.DIVERGENT, "b"),
        conflict(Effect.WRONG, "c"),
    ]
    harms = tuple(one.landing for one in conflicts if one.landing is not None)
    judged = ReleaseVerdict(
        cell=Cell(release="0.0.0", runner=ModelRunner.V1, mode=StateMode.NONE),
        scenario="requests-0-9",
        base=told,
        shown=told,
        search=LandingSearch(races=tuple(conflicts), harms=harms, runs=7),
    )

    def counted(judged: ReleaseVerdict) -> TargetResult:
        witnesses = every_witness_of(EngineWitness, judged, SCENARIO)
        result = result_of(judged, "requests-0-9.toml")
        return TargetResult(result=result, witnesses=tuple(witnesses))

    shown = counted(judged)
    report = report_of(0, 9, shown)
    assert (report.signature, report.schedules) == ("wrong/c/abc", 8)
    assert report.found is not None
    assert report.found.witness.holds == ("d2h c#1 until host read",)
    assert report_of(0, 9, shown, seen={"wrong/c/abc": 4}).found is None
    assert not shown.result.is_lost
    late = msgspec.structs.replace(told, ending=Ending.TIMED_OUT)
    assert counted(msgspec.structs.replace(judged, shown=late)).result.is_lost


@pytest.mark.parametrize("verdict", [Verdict.PROVED, Verdict.BENIGN, Verdict.INCONCLUSIVE])
def test_what_is_no_finding_for_an_exit_code_is_none_for_a_fleet(verdict: Verdict) -> None:
    shown = shown_by(drawn_requests(0, 0), "abc")
    result = msgspec.structs.replace(shown.result, verdict=verdict)
    report = report_of(0, 0, TargetResult(result=result, witnesses=shown.witnesses))
    assert (report.signature, report.found, report.settings) == (None, None, ())
    found = report_of(0, 0, shown)
    assert (found.signature, found.found is not None) == ("abc", True)
    refused = msgspec.structs.replace(shown.result, refused="no images")
    assert report_of(0, 0, TargetResult(result=refused)).settings == (NOT_RUN,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("schema = 1\ntargets = []", "length >= 1"),
        ("schema = 2\n[[targets]]\nname = 'a'\ndevice = 'gpu'", "schema"),
        ("schema = 1\n[[targets]]\nname = 'a'", r"one of the keys .* at `\$.targets\[0\]`"),
        ("schema = 1\n[[targets]]\nname = 'a'\ndevice = 'gpu'\nvllm = '1'", "got 2"),
        ("schema = 1\n[[targets]]\nname = 'a'\ndevice = 'tpu'", r"\$.targets\[0\].device"),
        ("schema = 1\n[[targets]]\nname = 'a b'\ndevice = 'gpu'", r"\$.targets\[0\].name"),
        ("schema = 1\n[[targets]]\nname = 'a'\ndevice = 'gpu'\ncolour = 1", "colour"),
        ("schema = 1\n[[targets]]\nname = 'a'\nvllm = '0.24.0'", 'write draw = "requests"'),
        (
            "schema = 1\n[[targets]]\nname = 'a'\ndevice = 'gpu'\n"
            "[[targets]]\nname = 'a'\ndevice = 'virtual'",
            "two targets have the name 'a'",
        ),
        ("schema = ", "fleet.toml"),
    ],
)
def test_a_fleet_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(FleetError, match=why):
        load_fleet(path)


def test_what_is_no_revision_is_refused(targets: dict[str, str], tmp_path: Path) -> None:
    table = targets["racing"].replace('revision = "racing"', 'revision = "none"')
    words = ["fleet", str(fleet_file(tmp_path, table)), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, "--scenarios", "1"])
    assert (result.exit_code, "git says" in result.output) == (2, True)
