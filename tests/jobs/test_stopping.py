"""Told to stop, a job says what is done and how to go on, and leaves no process behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.device.cuda.pacing import Pacing
from racegate.faults.catalogue import FAULTS
from racegate.history.finding import Verdict
from racegate.jobs.gather import gather, run_all
from racegate.jobs.pools.pool import Done, Task
from racegate.jobs.soak import SoakResult, SoakSpec, Tally, soak
from racegate.jobs.stopping import (
    StoppedError,
    TerminatedError,
    code_of,
    known_result,
    words_of,
)
from support import NAMES

ROOT = Path(__file__).parents[2]
SCENARIOS = str(ROOT / "scenarios")


class Doubler:
    """Doubles numbers."""

    def work(self, task: int) -> int:
        return 2 * task

    def end(self) -> int:
        return -1


def stop_after(count: int, stop: KeyboardInterrupt) -> Callable[[str], None]:
    done: list[str] = []

    def on_done(name: str) -> None:
        done.append(name)
        if len(done) == count:
            raise stop

    return on_done


TASKS = [Task(name=f"task {number}", content=number) for number in range(5)]


def test_what_is_done_stays() -> None:
    stop = KeyboardInterrupt()
    found = gather(lambda number: Doubler(), TASKS, workers=1, on_done=stop_after(2, stop))
    assert (found.results, found.left) == ([0, 2], ("task 2", "task 3", "task 4"))
    assert found.stop is stop
    assert found.breakages == ()


def test_a_job_without_parts_says_so_and_has_them() -> None:
    with pytest.raises(StoppedError) as caught:
        run_all(
            lambda number: Doubler(),
            TASKS,
            workers=1,
            on_done=stop_after(3, TerminatedError()),
        )
    assert list(caught.value.results) == [0, 2, 4]
    assert code_of(caught.value) == 143
    assert words_of(caught.value) == (
        "terminated: 3 of 5 done, not task 3, task 4; to go on: the same command begins anew"
    )


def test_a_stop_in_words() -> None:
    assert (code_of(KeyboardInterrupt()), words_of(KeyboardInterrupt())) == (130, "interrupted")
    assert (code_of(TerminatedError()), words_of(TerminatedError())) == (143, "terminated")
    hung_up = TerminatedError(signal.SIGHUP)
    assert (code_of(hung_up), words_of(hung_up)) == (129, "terminated")


@pytest.fixture
def stops_at_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes with the third task, whatever the job."""
    from racegate.jobs.pools.pool import InProcessPool

    work = InProcessPool._done
    seen: list[int] = []

    def counted(pool: InProcessPool, *given: object) -> object:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return work(pool, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(InProcessPool, "_done", counted)


@pytest.mark.usefixtures("stops_at_third")
class TestCommands:
    def test_gate(self, tmp_path: Path) -> None:
        path = tmp_path / "gate.json"
        words = "three-row or two-row or stop or length"
        command = ["gate", "--scenarios", SCENARIOS, "--workers", "1", "-k", words]
        result = CliRunner().invoke(app, [*command, "--json", str(path)])
        assert result.exit_code == 130
        assert "interrupted: 2 of 5 done, not " in result.stderr
        assert "to go on: the same command, or -k" in result.stderr
        assert "INCONCLUSIVE: 2 scenarios" in result.stdout
        gate = json.loads(path.read_text())
        assert gate["verdict"] == Verdict.INCONCLUSIVE
        assert len(gate["scenarios"]) == 2
        assert "the gate was stopped: 2 of 5 done" in gate["unmet"][0]

    def test_fuzz_goes_on_where_it_was(self, tmp_path: Path) -> None:
        command = ["fuzz", "--out", str(tmp_path), "--scenarios", "3"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 130
        assert "2 scenarios of the campaign" in result.stderr
        assert "it begins with scenario 2" in result.stderr
        again = CliRunner().invoke(app, [*command, "--json", "-"])
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["campaign"]["done"] == 3

    def test_mutate(self, tmp_path: Path) -> None:
        shutil.copy(ROOT / "scenarios" / "finish_and_condense.toml", tmp_path)
        result = CliRunner().invoke(app, ["faults", "mutate", "--scenarios", str(tmp_path)])
        assert result.exit_code == 130
        assert "2 of " in result.stderr
        assert "(1 killed, 1 equivalent); to go on: the same command begins anew" in result.stderr

    def test_matrix(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(
            "racegate.measure.evaluation.matrix.RowWorker.work", lambda self, name: name
        )
        result = CliRunner().invoke(
            app, ["faults", "matrix", "--scenarios", SCENARIOS, "--json", str(tmp_path / "m.json")]
        )
        assert result.exit_code == 130
        assert f"2 of {len(FAULTS)} done, not " in result.stderr
        assert not (tmp_path / "m.json").exists()


def test_a_soak_has_what_it_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "scenarios" / "length_limit.toml"

    def events(*given: object) -> Iterator[object]:
        tally = Tally(scenario="length-limit", runs=1, held=1)
        yield Done(worker=0, number=0, name="length-limit", result=tally)
        raise TerminatedError

    monkeypatch.setattr("racegate.jobs.pools.driver.DrivenPool.run", events)
    monkeypatch.setattr("racegate.jobs.soak.environment_of", lambda device: {})
    plan = SoakSpec(runs=9, seconds=None, workers=1, seed=1, pacing=Pacing.EAGER)
    with pytest.raises(StoppedError, match="1 of 9 runs made") as caught:
        soak([path], plan, lambda made: None)
    assert code_of(caught.value) == 143
    assert known_result(caught.value, SoakResult).total.held == 1


def group_of(pid: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pid and state != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to see processes in")
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_no_process_is_left(how: signal.Signals, code: int) -> None:
    # A shell starts what runs in its background with SIGINT ignored, and nohup with SIGHUP: pytest
    # may run there, and the gate would ignore it too.
    main = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "from racegate.cli.start import main; main()"
    )
    gate = ["gate", "--scenarios", SCENARIOS, "--workers", "2", "-k", "not pairs"]
    command = [sys.executable, "-c", main, *gate]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while len(group_of(process.pid)) < 3:  # the gate and its workers; and a tracker of spawn's
            assert process.poll() is None
        # As a terminal does it, Ctrl-C is for all of them.
        os.killpg(process.pid, how) if how is signal.SIGINT else process.send_signal(how)
        out, err = process.communicate()
        assert process.returncode == code
        assert f" of {len(NAMES)} done, not " in err
        assert "Traceback" not in out + err
        until = time.monotonic() + 60
        while group_of(process.pid) and time.monotonic() < until:
            pass
        assert group_of(process.pid) == []
    finally:
        for one in group_of(process.pid):
            os.kill(one, signal.SIGKILL)
        process.communicate()
