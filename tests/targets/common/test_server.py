"""A fork server and its client: one process per job, and why there is none."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from racegate.interpose.errors import BadInput
from racegate.interpose.program.leftovers import ending_here, fork
from racegate.interpose.program.timeouts import where_it_stood
from racegate.scenario.errors import BrokenHarnessError
from racegate.targets.common.server import ForkServer, open_server

# Jobs are numbers of steps; each process says what the server knew when it was forked.
SERVER = """
import os, sys, time
from pathlib import Path
import msgspec
from racegate.interpose.forkserver import JobServer
from racegate.interpose.program.timeouts import write_stacks_on_signal

class Job(msgspec.Struct):
    do: str
    folder: str = ""

def stand():
    while True:
        time.sleep(60)

(server,) = JobServer.of_arguments(sys.argv[-2:], Job)
{before}
server.tell_started()
ended = []
while (job := server.peek()) is not None:
    if server.fork(lambda: ended.append(job.do)) is None:
        continue
    if job.do == "stand":
        if job.folder:
            write_stacks_on_signal(Path(job.folder))
        stand()
    if job.do == "die":
        os.kill(os.getpid(), 9)
    os._exit(len(ended))
"""


class Job(msgspec.Struct):
    """As the server reads it."""

    do: str
    folder: str = ""


def opened(
    folder: Path, before: str = "", failed: Path | None = None
) -> AbstractContextManager[ForkServer]:
    script = folder / "server.py"
    script.write_text(SERVER.replace("{before}", before))
    command = [sys.executable, str(script)]
    return open_server(command, os.environ, what="the small engine", failed=failed)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    with opened(tmp_path) as started:
        yield started


def test_each_job_has_a_process_and_the_server_learns_between_them(server: ForkServer) -> None:
    assert [server.run(Job("count")) for _ in range(3)] == [0, 1, 2]
    assert server.run(Job("die")) == -signal.SIGKILL
    assert server.run(Job("count")) == 4


def test_a_job_that_takes_too_long_says_where_it_stands(server: ForkServer, tmp_path: Path) -> None:
    assert server.run(Job("stand", str(tmp_path)), 0.5) is None
    assert "server.py:" in where_it_stood(tmp_path) and "in stand" in where_it_stood(tmp_path)
    assert server.run(Job("count")) == 1, "the next job is run as ever"


def test_a_job_is_killed(server: ForkServer, tmp_path: Path) -> None:
    pid = server.begin(Job("stand", str(tmp_path)))
    server.kill(pid)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert server.run(Job("count")) == 1


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    failed = tmp_path / "failed.txt"
    said = f"open({str(failed)!r}, 'w').write('no such model'); sys.exit(1)"
    with (
        pytest.raises(BadInput, match="the small engine did not start: no such model"),
        opened(tmp_path, said, failed),
    ):
        pass
    with (
        pytest.raises(BadInput, match="did not start: its message is above"),
        opened(tmp_path, "sys.exit(1)"),
    ):
        pass


def test_a_server_that_never_starts_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("racegate.targets.common.server.START_S", 0.2)
    with (
        pytest.raises(BrokenHarnessError, match=r"the small engine did not start within 0\.2 s"),
        opened(tmp_path, "time.sleep(60)"),
    ):
        pass


def test_a_server_whose_job_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("racegate.targets.common.server.END_S", 0.2)
    with opened(tmp_path) as server:
        pid = server.begin(Job("stand"))
    while Path(f"/proc/{pid}").exists():  # killed, and not collected yet
        os.sched_yield()


def test_a_forked_process_takes_nothing_down() -> None:
    said, says = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            with ending_here():
                raise ValueError
        finally:
            os.write(says, b"what is behind was run")
    os.close(says)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert os.read(said, 1) == b""
    os.close(said)
