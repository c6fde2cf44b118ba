"""The pool: the same results for any number of workers, a name for what is lost, and no process
left behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import pool_workers
from pool_workers import Doomed, Patient, Squarer, make_uneven, numbered, signs_of_one
from racegate.jobs.gather import run_all
from racegate.jobs.pools.choice import pool_of
from racegate.jobs.pools.driver import DrivenPool
from racegate.jobs.pools.pool import (
    Done,
    Ended,
    InProcessPool,
    Lost,
    PoolError,
    RefusedError,
    Started,
    Tick,
    in_order,
    spread,
)
from racegate.jobs.pools.processes import ProcessTransport, process_pool


def is_alive(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(is_done: Callable[[], bool]) -> None:
    """Polls for what another process does; the test's own timeout bounds it."""
    while not is_done():
        time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_are_in_the_order_of_the_tasks_for_any_number_of_workers(workers: int) -> None:
    seen: list[str] = []
    found, last = run_all(Squarer, numbered(range(20)), workers=workers, on_done=seen.append)
    assert found == [number * number for number in range(20)]
    assert sorted(seen) == sorted(f"number {number}" for number in range(20))
    assert [number for number, _ in last] == list(range(workers))
    processes = {process for _, process in last}
    assert len(processes) == workers
    assert (os.getpid() in processes) == (workers == 1)


def test_one_worker_needs_no_process() -> None:
    assert isinstance(pool_of(1), InProcessPool)
    assert isinstance(pool_of(2), DrivenPool)


def test_what_is_done_later_is_given_later(tmp_path: Path) -> None:
    # Number 0 is done only after number 1.
    make = partial(make_uneven, str(tmp_path / "x"))
    with closing(process_pool().run(make, spread(numbered(range(2)), 2))) as events:
        done = [event.number for event in in_order(events) if isinstance(event, Done)]
    assert done == [0, 1]


def test_what_is_handed_out_is_put_in_order() -> None:
    def done(number: int) -> Done[int]:
        return Done(worker=0, number=number, name="", result=number)

    ended = Ended(worker=0, result=None)
    events = (done(1), Tick(), done(2), ended, done(0), done(3))
    ordered = list(in_order(events))
    assert ordered == [Tick(), ended, done(0), done(1), done(2), done(3)]


def test_shares_pin_tasks_to_workers() -> None:
    shares = [numbered(range(0, 6, 2)), numbered(range(1, 6, 2))]
    with closing(process_pool().run(Squarer, shares)) as events:
        done = [(event.worker, event.name) for event in events if isinstance(event, Done)]
    assert sorted(done) == sorted((number % 2, f"number {number}") for number in range(6))


@pytest.mark.parametrize(
    ("number", "why"),
    [(3, r"worker \d was killed by SIGKILL"), (4, "ValueError: planted"), (7, "ended with .* 9")],
)
def test_what_breaks_a_task_or_a_worker_is_reported_with_it(number: int, why: str) -> None:
    with pytest.raises(PoolError, match=rf"number {number}: .*{why}"):
        run_all(Doomed, numbered(iter([1, number, 2, 8, 9])), workers=2)
    assert multiprocessing.active_children() == []


def test_the_other_workers_go_on() -> None:
    shares = [numbered(range(3, 4)), numbered(range(8, 12))]
    with closing(process_pool().run(Doomed, shares)) as events:
        heard = [event for event in events if not isinstance(event, Tick)]
    assert [event.doing for event in heard if isinstance(event, Lost)] == ["number 3"]
    assert [event.result for event in heard if isinstance(event, Done)] == [64, 81, 100, 121]
    assert [event.worker for event in heard if isinstance(event, Ended)] == [1]


def test_bad_input_is_told_by_the_driver() -> None:
    with pytest.raises(RefusedError, match="5 is no number"):
        run_all(Doomed, numbered(range(5, 6)), workers=2)


def test_a_worker_that_says_nothing_is_lost() -> None:
    with closing(process_pool(silent_s=0.5).run(Doomed, [numbered(range(6, 8))])) as events:
        heard = [event for event in events if not isinstance(event, Tick | Started)]
    (lost,) = heard
    assert isinstance(lost, Lost)
    assert (lost.doing, lost.why) == ("number 6", "has said nothing for 0.5 s")


def test_a_worker_that_takes_long_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process each begins the alarm anew; a process counts them for its driver."""
    alarms: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: alarms.append(seconds))
    assert [
        e.result
        for e in InProcessPool(timeout_s=30).run(Patient, [numbered(iter([3]))])
        if isinstance(e, Done)
    ] == [9]
    assert alarms == [30.0] * 4 + [0.0]
    assert signs_of_one(ProcessTransport(), 7) == 7


def test_a_pool_that_is_closed_leaves_no_process() -> None:
    events = process_pool().run(Squarer, spread(numbered(), 2))
    assert len(list(islice((event for event in events if isinstance(event, Done)), 5))) == 5
    assert len(multiprocessing.active_children()) == 2
    events.close()
    assert multiprocessing.active_children() == []


def workers_of(driver: int) -> list[int]:
    """The children of a process, and the process that multiprocessing tracks resources with."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == driver:
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to see workers in")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_driver(how: signal.Signals) -> None:
    driver = subprocess.Popen(
        [sys.executable, pool_workers.__file__],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    workers: list[int] = []
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"both\n"
        workers = workers_of(driver.pid)
        assert len(workers) >= 2
        # As a terminal does it: Ctrl-C is for all of them.
        os.killpg(driver.pid, how) if how is signal.SIGINT else driver.send_signal(how)
        driver.wait()
        wait_for(lambda: not any(map(is_alive, workers)))
    finally:
        for one in (driver.pid, *workers):
            if is_alive(one):
                os.kill(one, signal.SIGKILL)
        driver.communicate()
    assert driver.returncode != 0
