"""The harness broken on purpose, one way at a time: always exit code 3, with what broke and where,
and nothing that was found is lost.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from racegate.check.checker import Checker
from racegate.cli.app import app
from racegate.explore.dpor import ScheduleDivergedError
from racegate.faults.fault import Fault
from racegate.history.finding import Verdict
from racegate.history.outcome import RunResult
from racegate.history.witness import load_witness
from racegate.jobs.gate import GateJudge, GateSpec, run_gate
from racegate.jobs.pools.time_limit import TimeLimitError, limited_time
from support import SCENARIOS, scenario

FINISH = SCENARIOS / "finish_and_condense.toml"
LOGIC = "correction-partial-fields"
WITNESS = next((SCENARIOS / "witnesses").glob("accepted-double-remap*"))
ERRORS: tuple[Exception, ...] = (
    RuntimeError("planted"),
    MemoryError(),
    RecursionError("planted"),
    ZeroDivisionError("planted"),
    KeyError("planted"),
    ScheduleDivergedError("planted"),
)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def breaking(error: Exception, *, after: int = 0, then: Any = None) -> Callable[..., Any]:
    """Raises, from the call behind the first so many on; these are `then`'s."""
    calls: list[int] = []

    def call(*given: Any, **options: Any) -> Any:
        calls.append(0)
        if len(calls) <= after:
            return then(*given, **options)
        raise error

    return call


def racegate(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def gate(tmp_path: Path, *arguments: object) -> tuple[Result, dict[str, Any]]:
    """Two scenarios with a fault that shows in both, and what was written."""
    file, scripts = tmp_path / "gate.json", tmp_path / "scripts"
    scripts.mkdir()
    for name in ("finish_and_condense", "preempt_and_resume"):
        shutil.copy(SCENARIOS / f"{name}.toml", scripts)
    bounds = ("--workers", 1, "--budget", 4, "--fault", LOGIC, "--json", file)
    result = racegate("gate", "--scenarios", scripts, *bounds, *arguments)
    return result, json.loads(file.read_bytes()) if file.exists() else {}


def is_broken(result: Result, text: str = "") -> bool:
    said = " ".join((result.stdout + result.stderr).split())
    return result.exit_code == 3 and "Traceback" not in said and text in said


def kinds_of(run: dict[str, Any]) -> set[str]:
    return {finding["kind"] for finding in run["findings"]}


class TestGate:
    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_oracle_that_raises_leaves_what_the_others_say(
        self, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("racegate.oracles.recall.find_divergence", breaking(error))
        result, written = gate(tmp_path)
        assert is_broken(result, f"oracle stepwise: {type(error).__name__}")
        assert len(written["scenarios"]) == 2
        for run in written["scenarios"]:
            assert run["verdict"] == Verdict.BROKEN_HARNESS
            assert "invariant" in kinds_of(run)
            (breakage,) = run["breakages"]
            assert breakage["command"].endswith(f"--fault {LOGIC}")

    @pytest.mark.parametrize(
        "name",
        [
            "oracles.recall.find_conflicts",
            "check.judge.find_misowned",
            "oracles.recall.find_violations",
            "check.judge.find_losses",
        ],
    )
    def test_each_oracle(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(f"racegate.{name}", breaking(ERRORS[0]))
        result, written = gate(tmp_path)
        assert is_broken(result, "planted")
        assert all("divergence" in kinds_of(run) for run in written["scenarios"])

    @pytest.mark.parametrize(
        "place",
        [
            "racegate.check.expected.run_reference",
            "racegate.check.expected.plain_decode",
            "racegate.check.subject.make_weights",
            "racegate.check.checker.Checker.execute",
            "racegate.engine.observe.recording.RecordingProbe.processed",
            "racegate.device.recorder.Recorder.issue",
            "racegate.check.judge.make_stats",
            "racegate.jobs.gate.TwiceRun",
        ],
    )
    def test_what_breaks_in_one_scenario_leaves_the_other(
        self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first scenario is done as it is, and only then something breaks."""
        done: list[str] = []
        original = GateJudge.__call__

        def look(self: GateJudge, checker: Checker, fault: Fault | None, **given: Any) -> RunResult:
            result = original(self, checker, fault, **given)
            done.append(checker.scenario.name)
            monkeypatch.setattr(place, breaking(MemoryError("planted")))
            return result

        monkeypatch.setattr(GateJudge, "__call__", look)
        result, written = gate(tmp_path)
        assert is_broken(result, "MemoryError: planted")
        assert done[0] == "finish-and-condense"
        assert "divergence" in kinds_of(written["scenarios"][0])
        assert written["breakages"] or any(run["breakages"] for run in written["scenarios"])

    def test_a_search_that_breaks_off_keeps_the_eager_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "racegate.explore.ladder._schedules", breaking(ScheduleDivergedError("planted"))
        )
        file = tmp_path / "run.json"
        result = racegate(
            "run", FINISH, "--fault", "accepted-read-before-copy", "--explore", "ladder",
            "--json", file,
        )  # fmt: skip
        assert is_broken(result, "ScheduleDivergedError: planted")
        assert "conflict" in kinds_of(json.loads(file.read_bytes()))

    @pytest.mark.parametrize(
        "place", ["racegate.jobs.gate.plant_canaries", "racegate.report.text.print_causes"]
    )
    def test_the_end_of_a_gate(
        self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(place, breaking(RuntimeError("planted")))
        result, written = gate(tmp_path)
        assert is_broken(result, "planted")
        assert all("divergence" in kinds_of(run) for run in written["scenarios"])

    def test_a_witness_that_breaks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("racegate.jobs.gate.replay", breaking(RuntimeError("planted")))
        chosen = ("-k", f"finish-and-condense or {WITNESS.name}", "--must-fail", WITNESS.parent)
        result, written = gate(tmp_path, *chosen)
        assert is_broken(result, f"again: racegate replay {WITNESS}")
        assert "divergence" in kinds_of(written["scenarios"][0])

    def test_a_full_disk_leaves_the_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "gate.json").write_text("{}")
        monkeypatch.setattr("racegate.cli.options.write_whole", breaking(FULL))
        result, written = gate(tmp_path)
        assert is_broken(result, "No space left on device")
        assert "DIVERGENT" in result.stdout
        assert written == {}, "the file of before is whole"

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at /dev/full")
    def test_a_device_is_written_and_not_replaced(self, tmp_path: Path) -> None:
        result = racegate("scenarios", "list", "--scenarios", SCENARIOS, "--json", "/dev/full")
        assert is_broken(result, "No space left")
        assert not Path("/dev/full").is_file()


def killed(place: int, checker: Checker, fault: Fault | None, **_: Any) -> RunResult:
    """Looks, and kills its worker at one of the scenarios."""
    if checker.scenario.name == NAMES[place]:
        os.kill(os.getpid(), signal.SIGKILL)
    return GateJudge(budget=None)(checker, fault)


NAMES = ("finish-and-condense", "two-row-cycle", "stop-token", "three-row-cycle", "depth-three")


def test_a_worker_that_is_killed_leaves_the_others_scenarios() -> None:
    given = GateSpec(scenarios=tuple((Path(f"{name}.toml"), scenario(name)) for name in NAMES))
    result = run_gate(given, look=partial(killed, 0), workers=2)
    assert result.exit_code == 3
    assert [run.scenario for run in result.scenarios] == list(NAMES[1:])
    assert [(one.at, "SIGKILL" in one.error) for one in result.breakages] == [(NAMES[0], True)]


class TestRunAndReplay:
    def test_a_failure_is_written_before_it_is_minimised(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "raw.witness.json"
        monkeypatch.setattr(
            "racegate.check.repro.minimise.minimise", breaking(MemoryError("planted"))
        )
        result = racegate("run", FINISH, "--fault", LOGIC, "--witness", file)
        assert is_broken(result, "MemoryError: planted")
        assert "DIVERGENT" in result.stdout
        monkeypatch.undo()
        assert racegate("replay", file).exit_code == 1
        assert len(load_witness(file).scenario.requests) == len(scenario(NAMES[0]).requests)

    def test_a_replay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("racegate.oracles.recall.find_violations", breaking(RecursionError()))
        assert is_broken(racegate("replay", WITNESS), "RecursionError")

    @pytest.mark.parametrize("option", ["--json", "--witness"])
    @pytest.mark.parametrize("place", ["none/x.json", "."])
    def test_a_place_that_cannot_be_written_is_bad_input_before_anything_is_run(
        self, option: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("racegate.cli.run.load", breaking(AssertionError("it was run")))
        result = racegate("run", FINISH, option, tmp_path / place)
        assert (result.exit_code, "cannot write" in result.stderr) == (2, True)

    def test_what_does_not_end_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def forever(*given: object) -> None:
            while True:
                pass

        monkeypatch.setattr("racegate.engine.engine.AsyncEngine.step", forever)
        result = racegate("run", FINISH, "--timeout", 0.2)
        assert is_broken(result, "running finish-and-condense did not end within 0.2 s")

    def test_without_a_limit_there_is_no_alarm(self) -> None:
        before = signal.getsignal(signal.SIGALRM)
        with limited_time(0.0, "nothing"):
            assert signal.getsignal(signal.SIGALRM) is before
        with pytest.raises(TimeLimitError), limited_time(60.0, "this"):
            os.kill(os.getpid(), signal.SIGALRM)
            while True:  # a handler is called between two instructions
                pass
        assert signal.getsignal(signal.SIGALRM) is before

    def test_interrupted_is_no_finding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*given: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("racegate.cli.run.load", interrupt)
        assert racegate("run", FINISH).exit_code == 130


def fuzz(folder: Path) -> tuple[Result, dict[str, Any]]:
    result = racegate("fuzz", "--out", folder, "--scenarios", 2, "--fault", LOGIC, "--json", "-")
    return result, json.loads(result.stdout) if result.stdout else {}


def witnesses(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.witness.json")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A campaign that nothing breaks: what it says, and its witnesses."""
    folder = tmp_path_factory.mktemp("whole")
    result, shown = fuzz(folder)
    assert (result.exit_code, len(shown["new"]) > 0) == (1, True)
    return shown, witnesses(folder)


class TestCampaign:
    def test_one_that_is_killed_while_it_minimises_has_lost_nothing(
        self,
        whole: tuple[dict[str, Any], dict[str, bytes]],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("racegate.jobs.generated.minimise", breaking(KeyboardInterrupt()))  # type: ignore[arg-type]
        result, _ = fuzz(tmp_path / "cut")
        assert result.exit_code == 130
        raw = witnesses(tmp_path / "cut")
        assert raw and all(name.endswith(".raw.witness.json") for name in raw)
        assert racegate("replay", *(tmp_path / "cut" / name for name in raw)).exit_code == 1
        monkeypatch.undo()
        assert fuzz(tmp_path / "cut")[0].exit_code == 1
        assert witnesses(tmp_path / "cut") == whole[1]

    @pytest.mark.parametrize(
        "place",
        [
            "racegate.jobs.generated.minimise",
            "racegate.jobs.generated.as_found",
            "racegate.jobs.generated.Checker",
            "racegate.jobs.stores.folder.save",
            "racegate.jobs.campaign.write_whole",
            "racegate.jobs.generated.plant_canaries",
        ],
    )
    def test_what_breaks_it_is_3_and_the_same_command_finds_the_same(
        self,
        place: str,
        whole: tuple[dict[str, Any], dict[str, bytes]],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        shown_whole, files = whole
        error = FULL if "generated" not in place else MemoryError("planted")
        monkeypatch.setattr(place, breaking(error))
        result, shown = fuzz(tmp_path / "broken")
        assert result.exit_code == 3
        assert type(error).__name__ in shown["breakages"][0]["error"]
        monkeypatch.undo()
        result, again = fuzz(tmp_path / "broken")
        assert result.exit_code == 1
        assert {one["signature"] for one in again["new"]} | set(again["known"]) == {
            one["signature"] for one in shown_whole["new"]
        }
        assert witnesses(tmp_path / "broken") == files
        assert again["campaign"]["verdicts"] == shown_whole["campaign"]["verdicts"]
