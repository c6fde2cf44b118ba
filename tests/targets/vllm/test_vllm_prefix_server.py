"""Runs that are forked from the beginning that they have in common."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
from test_vllm_search import SCENARIO

from racegate.interpose.outcome import Plan
from racegate.targets.common.inside.prefix_server import ForkPoint, PrefixServer
from racegate.targets.common.judge import RUNS_MAX, Gaps
from racegate.targets.common.search import search
from racegate.targets.common.wire import NOTHING_HELD, ReleaseRun, Task
from small_engine import SmallEngine, Wait

TURNS = 5
# An engine of which every run says its number and goes on for a minute, and its client: who asks it
# for one run, and is there until it is killed.
ENGINE = """
import os, sys, time
from racegate.interpose.program.leftovers import live_with_client
from racegate.scenario.spec import Scenario
from racegate.targets.common.inside.prefix_server import PrefixServer
from racegate.targets.common.wire import NOTHING_HELD, Task

def run(task, fork_point):
    fork_point.before(1)
    print(os.getppid(), os.getpid(), flush=True)
    time.sleep(60)
    print("not killed", flush=True)

live_with_client(int(sys.argv[1]))
print(os.getpid(), flush=True)
prefix_server = PrefixServer(run)
scenario = Scenario(name="a", title="a", requests=())
prefix_server.fork(Task(scenario=scenario, plan=NOTHING_HELD, result="", turn=1))
prefix_server.answer()
"""
CLIENT = """
import os, subprocess, sys
job_end, jobs = os.pipe()
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(job_end)], pass_fds=[job_end]).wait()
"""


class Counting:
    """An engine whose turns are written down, one per line, as they are run."""

    def __init__(self, folder: Path) -> None:
        self.ran = folder / "ran.txt"
        self.folder = folder
        self.prefix_server = PrefixServer(self.run)

    def run(self, task: Task, fork_point: ForkPoint) -> None:
        """In the process of the beginning, and in those forked from it."""
        taken: Task | None = None
        for turn in range(TURNS):
            if taken is None and (found := fork_point.before(turn)) is not None:
                taken = found[0]
            with self.ran.open("a") as file:
                file.write(f"{turn}{'' if taken is None else ' of ' + taken.result}\n")
        if taken is not None:
            os._exit(7)

    def ask(self, name: str, turn: int) -> int | None:
        """The exit code of a task."""
        task = Task(scenario=SCENARIO, plan=Plan(), result=name, turn=turn)
        return None if self.prefix_server.fork(task) is None else self.prefix_server.answer()

    def lines(self) -> list[str]:
        """What was run since it was asked last."""
        found = self.ran.read_text().splitlines() if self.ran.exists() else []
        self.ran.unlink(missing_ok=True)
        return found


def test_the_beginning_is_run_once(tmp_path: Path) -> None:
    engine = Counting(tmp_path)
    assert engine.ask("A", 2) == 7
    assert engine.lines() == ["0", "1", "2 of A", "3 of A", "4 of A"]
    assert engine.ask("B", 2) == 7
    assert engine.lines() == ["2 of B", "3 of B", "4 of B"]
    assert engine.ask("C", 4) == 7
    assert engine.lines() == ["2", "3", "4 of C"]
    assert engine.ask("D", 1) == 7, "an earlier turn begins anew"
    assert engine.lines() == ["0", "1 of D", "2 of D", "3 of D", "4 of D"]
    engine.prefix_server.close()


def test_the_beginning_learns_from_each_run_before_the_next() -> None:
    lessons: list[int] = []

    def run(task: Task, fork_point: ForkPoint) -> None:
        if fork_point.before(task.turn) is not None:
            os._exit(len(lessons))

    prefix_server = PrefixServer(run, lambda: lessons.append(1))
    codes = []
    for _ in range(3):
        prefix_server.fork(Task(scenario=SCENARIO, plan=Plan(), result="", turn=1))
        codes.append(prefix_server.answer())
    prefix_server.close()
    assert codes == [0, 1, 2]
    assert not lessons, "in the process of the beginning, not in the one that serves"


def test_the_beginning_does_not_hold_what_it_leaves_open() -> None:
    said, says = os.pipe()

    def run(task: Task, fork_point: ForkPoint) -> None:
        fork_point.before(task.turn)
        os._exit(7)

    prefix_server = PrefixServer(run, leave=lambda: os.close(says))
    prefix_server.fork(Task(scenario=SCENARIO, plan=Plan(), result="", turn=1))
    assert prefix_server.answer() == 7
    os.close(says)
    assert os.read(said, 1) == b"", "nobody could write there any more, as its reader is told"
    os.close(said)
    prefix_server.close()


def test_a_beginning_that_ends_too_soon_has_no_run(tmp_path: Path) -> None:
    engine = Counting(tmp_path)
    assert engine.ask("A", TURNS) is None
    assert engine.ask("B", 1) == 7
    engine.prefix_server.close()


def test_the_beginning_counts_as_a_run_that_holds_something() -> None:
    assert NOTHING_HELD.holds and not NOTHING_HELD.is_recording


def test_operations_are_tried_in_the_order_of_their_turns() -> None:
    base = SmallEngine(Wait.BEHIND).run(Plan())
    (found,) = {found.first.label: found for found in base.findings}.values()
    later = msgspec.structs.replace(found, pairs=(("d2h later#1", "x"), *found.pairs))
    turns = {"d2h later#1": 3, found.first.label: 1}
    tried: list[str] = []

    def run(plan: Plan) -> ReleaseRun:
        tried.append(plan.holds[0].op)
        return base

    base = msgspec.structs.replace(base, findings=(later,), turns=turns)
    search(SimpleNamespace(run=run), base, Gaps(), runs_max=RUNS_MAX)
    assert tried[:2] == [found.first.label, "d2h later#1"]


def test_a_killed_client_leaves_no_process_of_its_engine() -> None:
    command = [sys.executable, "-c", CLIENT, ENGINE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pids = [int(word) for _ in range(2) for word in client.stdout.readline().split()]
        assert len(set(pids)) == 3 and all(map(is_running, pids)), "engine, beginning, run"
        client.kill()
        assert client.stdout.read() == "", "nobody has its end of the pipe any more"
    assert client.returncode == -signal.SIGKILL
    while any(map(is_running, pids)):  # killed, and not collected yet
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_engine_whose_client_has_gone_before_ends() -> None:
    job_end, jobs = os.pipe()
    os.close(jobs)
    done = subprocess.run(
        [sys.executable, "-c", ENGINE, str(job_end)], pass_fds=[job_end], capture_output=True
    )
    os.close(job_end)
    assert (done.returncode, done.stdout) == (0, b"")
