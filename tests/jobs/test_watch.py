"""Programs on each new version of a package: what is judged, what is new, gone, or stopped."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cuda_torch import needs_cuda_torch
from racegate.cli.app import app
from racegate.explore.features.table import FeatureTotals
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict
from racegate.jobs.fleet.matrix import matrix_in
from racegate.jobs.notices.watched import notices_of
from racegate.jobs.notices.webhook import NoticeKind
from racegate.jobs.stores.records import STATE_SCHEMA, CampaignState, ScenarioAside, Sighting
from racegate.jobs.versions import watching
from racegate.jobs.versions.watching import (
    JudgedVersion,
    MissedProgram,
    VersionChange,
    WatchedVersion,
    WatchObject,
    all_watched,
    watch_all,
)
from racegate.jobs.versions.watchlist import WatchedProgram, WatchError, load_watch
from racegate.report.dashboard.versions import render_watched
from tiny_package import PACKAGE, PROGRAM, TINY, wheel

LOADER = WatchedProgram(name="loader", program=("loader.py",), package="timm", since="1.0")


class ToldJudge:
    """Verdicts that are told: the signatures of each version, or why it has none.

    judged: versions in their order
    """

    def __init__(self, told: dict[str, tuple[str, ...] | str]) -> None:
        self._told = told
        self.judged: list[str] = []

    def __call__(self, watched: WatchedProgram, version: str) -> JudgedVersion:
        self.judged.append(version)
        told, now = self._told[version], time.time()
        hits = () if isinstance(told, str) else told
        verdict = Verdict.DIVERGENT if hits else Verdict.PROVED
        state = CampaignState(
            schema=STATE_SCHEMA,
            seed=0,
            fault=None,
            holds_each=watched.runs,
            benign=Benign.PASS,
            done=1,
            schedules=1,
            verdicts={} if isinstance(told, str) else {verdict.value: 1},
            hits=dict.fromkeys(hits, 1),
            exercised={},
            scenarios_with={},
            features=FeatureTotals().table(),
            seconds=0.0,
            set_aside=(ScenarioAside(scenario=0, why=told),) if isinstance(told, str) else (),
            seen=dict.fromkeys(hits, Sighting(first=now, last=now)),
            target=f"loader on timm {version}: {'DIVERGENT' if hits else 'no conflict'}",
            began=now,
        )
        return JudgedVersion(state, {})


def offered(monkeypatch: pytest.MonkeyPatch, *versions: str) -> None:
    """What the index has."""
    monkeypatch.setattr(watching, "available", lambda package: versions)


def looked(judge: ToldJudge, store: Path, watched: WatchedProgram = LOADER) -> list[WatchedVersion]:
    """A look at the index."""
    found = list(watch_all([watched], str(store), judge, say=lambda text: None))
    return [one for one in found if isinstance(one, WatchedVersion)]


def test_each_version_is_beside_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(monkeypatch, "0.9", "1.0", "1.1", "1.2", "1.3", "1.4")
    judge = ToldJudge(
        {"1.0": ("a",), "1.1": ("a", "b"), "1.2": "no wheel", "1.3": ("b",), "1.4": ("b",)}
    )
    found = looked(judge, tmp_path)
    assert [(one.version, one.change) for one in found] == [
        ("1.0", VersionChange.FIRST),
        ("1.1", VersionChange.DIFFERS),
        ("1.2", VersionChange.STOPPED),
        ("1.3", VersionChange.DIFFERS),
        ("1.4", VersionChange.SAME),
    ]
    assert [(one.new, one.gone) for one in found] == [
        (("a",), ()),
        (("b",), ()),
        ((), ()),
        ((), ("a",)),  # beside 1.1: nothing is known of 1.2
        ((), ()),
    ]
    assert found[2].said == "no wheel"
    assert found == all_watched([LOADER], str(tmp_path))
    assert "| loader | timm 1.2 | no wheel | no longer runs, 1.1 | 0 | 0 | 0 |" in render_watched(
        found
    )


def test_what_the_store_has_is_not_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = ToldJudge({"1.0": ("a",), "1.1": ()})
    offered(monkeypatch, "1.0")
    looked(judge, tmp_path)
    offered(monkeypatch, "1.0", "1.1")
    (found,) = looked(judge, tmp_path)
    assert (found.version, found.gone, found.before) == ("1.1", ("a",), "1.0")
    assert looked(judge, tmp_path) == []
    assert judge.judged == ["1.0", "1.1"]


def test_without_a_first_version_it_begins_with_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = msgspec.structs.replace(LOADER, since="")
    judge = ToldJudge({"1.1": (), "1.2": ()})
    offered(monkeypatch, "1.0", "1.1")
    looked(judge, tmp_path, newest)
    offered(monkeypatch, "1.0", "1.1", "1.2")
    looked(judge, tmp_path, newest)
    assert judge.judged == ["1.1", "1.2"]


def test_the_store_has_the_versions_as_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(monkeypatch, "1.0", "1.1")
    looked(ToldJudge({"1.0": ("a",), "1.1": "no wheel"}), tmp_path)
    matrix = matrix_in(str(tmp_path))
    assert matrix is not None
    shown = {one.name: (one.title, one.judged) for one in matrix.targets}
    assert shown["loader-1.0"] == ("loader on timm 1.0: DIVERGENT", 1)
    assert shown["loader-1.1"][1] == 0


def test_a_webhook_is_told_of_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "1.0", "1.1", "1.2")
    found = looked(ToldJudge({"1.0": ("a",), "1.1": ("b",), "1.2": "no wheel"}), tmp_path)
    told = [notice for one in found for notice in notices_of(one, "store")]
    assert [(one.kind, one.target, one.signature) for one in told] == [
        (NoticeKind.NEW, "loader-1.0", "a"),
        (NoticeKind.NEW, "loader-1.1", "b"),
        (NoticeKind.RESOLVED, "loader-1.1", "a"),
        (NoticeKind.STOPPED, "loader-1.2", None),
    ]
    assert told[1].text == "racegate, loader on timm 1.1: new finding b (after 1.0)"


def test_a_package_that_is_not_found_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(monkeypatch, "2.0")
    (found,) = watch_all([LOADER], str(tmp_path), ToldJudge({}), say=lambda text: None)
    assert found == MissedProgram(name="loader", why="timm has no version 1.0 here; it has 2.0")
    told = WatchObject(schema="s", store="", programs=1, versions=(), missed=(found,))
    assert told.exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 2\nprograms = []", "schema"),
        ('schema = 1\n[[programs]]\nname = "a"\nprogram = []\npackage = "b"', "length >= 1"),
        ('schema = 1\n[[programs]]\nname = "../a"\nprogram = ["a"]\npackage = "b"', "regex"),
        (
            "schema = 1\n" + '[[programs]]\nname = "a"\nprogram = ["a"]\npackage = "b"\n' * 2,
            "two programs have the name 'a'",
        ),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "watch.toml").write_text(text)
    with pytest.raises(WatchError, match=said):
        load_watch(tmp_path / "watch.toml")


@needs_cuda_torch
@pytest.mark.timeout(900)
def test_the_command(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version with a race, and one that asks for what is not there."""
    wheel(index, "3.1", TINY.format(waits=False))
    wheel(index, "3.2", TINY, "Requires-Dist: racegate-none==4\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "watch.toml").write_text(
        'schema = 1\n[[programs]]\nname = "tiny"\nprogram = ["program.py"]\n'
        f'package = "{PACKAGE}"\nsince = "3.1"\n'
    )
    words = ["watch", str(tmp_path / "watch.toml"), "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*words, "--json", "-"])
    assert done.exit_code == 1, done.output
    first, second = msgspec.json.decode(done.stdout, type=WatchObject).versions
    assert (first.said, len(first.new)) == ("DIVERGENT", 1)
    assert (second.change, second.new) == (VersionChange.STOPPED, ())
    matrix = matrix_in(str(tmp_path / "store"))
    assert matrix is not None
    assert [row.signature for row in matrix.rows] == list(first.new)
    again = CliRunner().invoke(app, words)
    assert (again.exit_code, "0 new versions" in again.stdout) == (0, True), again.output
