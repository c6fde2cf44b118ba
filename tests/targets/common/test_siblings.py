"""An engine and its siblings judge scenarios beside each other, each in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from racegate.jobs.foreign.releases import OpenedEngine, ReopenedEngine, in_threads
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.client import Engine
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.server import ServerLost, open_servers
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

# A job is told which process it is in: its number there, and the folder of that process's files.
SERVER = """
import os, sys
from pathlib import Path
import msgspec
from racegate.interpose.forkserver import JobServer
from racegate.interpose.program.leftovers import ending_here
from racegate.targets.common.inside.serve import serve, serve_each

class Job(msgspec.Struct):
    result: str
    turn: int = 0

class Host:
    folder, done = Path(sys.argv[1]), 0
    def run(self, task):
        Path(task.result).write_text(f"{self.folder.name} {self.done}")
    def learn(self):
        self.done += 1
    def part(self, folder):
        self.folder = folder

host = Host()
servers = JobServer.of_arguments(sys.argv[2:], Job)
with ending_here():
    serve_each(host, servers, host.folder, lambda server: serve(host, server))
"""
GONE = "the process of the engine ended"
CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE)


class Job(msgspec.Struct):
    """As the server reads it."""

    result: str


def test_each_server_has_its_own_process_and_its_own_files(tmp_path: Path) -> None:
    (engine := tmp_path / "engine").mkdir()
    result = tmp_path / "result"
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    command = [sys.executable, str(script), str(engine)]
    with open_servers(command, os.environ, what="the small engine", count=3) as servers:
        found = []
        for server in (*servers, *servers):
            assert server.run(Job(str(result))) == 0
            found.append(result.read_text())
    assert found == [
        *("engine 0", "sibling-1 0", "sibling-2 0"),
        *("engine 1", "sibling-1 1", "sibling-2 1"),
    ]


DECODES = """
from __future__ import annotations
import sys
from threading import Barrier
import msgspec
from racegate.jobs.foreign.releases import in_threads

sys.setswitchinterval(1e-6)
together = Barrier(4)

def decode(kind):
    together.wait()
    return msgspec.json.decode(b'{"last": {"name": {"last": {}}}}', type=kind)

for number in range(40):
    class Inner(msgspec.Struct):
        first: dict[str, list[int]] | None = None
        last: dict[str, str] | None = None

    class Outer(msgspec.Struct):
        first: list[Inner] | None = None
        last: dict[str, Inner] | None = None

    with in_threads(4, Outer) as in_order:
        list(in_order(decode, [Outer] * 4))
"""


def test_threads_may_decode_a_type_for_the_first_time_together() -> None:
    """Without the types named before, most of such processes end in a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", DECODES], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def scenario(name: str) -> Scenario:
    request = Request(name="A", arrive=0, prompt=(1, 2), max_tokens=1, accepts=(1,))
    return Scenario(name=name, title="t", requests=(request,))


class Opened:
    """Engines, each with so many siblings. names: of all that were opened"""

    def __init__(self, siblings: int = 1) -> None:
        self.siblings = siblings
        self.names: list[str] = []

    @contextmanager
    def __call__(self) -> Iterator[OpenedEngine]:
        number = len(self.names) // (self.siblings + 1)
        own = [f"{number}.{which}" for which in range(self.siblings + 1)]
        self.names += own
        first, *others = (self.engine(name) for name in own)
        yield OpenedEngine(CELL, first, first, dict, tuple(map(self.sibling, others)))

    def engine(self, name: str) -> Engine:
        return cast(Engine, SimpleNamespace(name=name))

    def sibling(self, engine: Engine) -> OpenedEngine:
        return OpenedEngine(CELL, engine, engine, dict)


def name_of(engine: OpenedEngine) -> str:
    return cast(SimpleNamespace, engine.engine).name


def judged(
    opened: Opened, judge: Callable[[OpenedEngine, Scenario], object], names: str
) -> list[object]:
    """What comes of scenarios, judged by as many threads as there are engines."""
    how = cast(Callable[[OpenedEngine, Scenario], ReleaseVerdict], judge)
    with in_threads(1 + opened.siblings) as in_order, ReopenedEngine(CELL, opened, how) as engine:
        return list(in_order(engine.judge, map(scenario, names)))


def test_scenarios_are_judged_at_a_time_and_told_in_their_order() -> None:
    both = Barrier(2)

    def judge(engine: OpenedEngine, scenario: Scenario) -> str:
        both.wait(60)  # nobody passes it alone
        return scenario.name

    opened = Opened()
    assert judged(opened, judge, "abcdef") == list("abcdef")
    assert opened.names == ["0.0", "0.1"]


def test_what_a_lost_sibling_judged_is_judged_again() -> None:
    def judge(engine: OpenedEngine, scenario: Scenario) -> str:
        if name_of(engine) == "0.1":
            raise ServerLost(GONE)
        return scenario.name

    opened = Opened()
    assert judged(opened, judge, "abcd") == list("abcd")
    assert opened.names == ["0.0", "0.1"], "the engine is still there, and goes on alone"


def test_a_scenario_that_ends_each_engine_is_a_line_and_the_others_are_judged() -> None:
    def judge(engine: OpenedEngine, scenario: Scenario) -> object:
        if scenario.name == "b":
            raise ServerLost(GONE)
        return scenario.name

    opened = Opened()
    first, second, *others = judged(opened, judge, "abcd")
    assert (first, *others) == ("a", "c", "d")
    assert isinstance(second, ReleaseVerdict) and second.base.message == GONE


def test_an_error_of_ours_is_raised_and_nobody_waits_for_its_engine() -> None:
    def judge(engine: OpenedEngine, scenario: Scenario) -> object:
        if scenario.name == "a":
            raise ZeroDivisionError
        return scenario.name

    with pytest.raises(ZeroDivisionError):
        judged(Opened(siblings=0), judge, "abc")
    with pytest.raises(ZeroDivisionError):
        judged(Opened(siblings=1), judge, "abc")


class Broken(Opened):
    """No engine starts."""

    @contextmanager
    def __call__(self) -> Iterator[OpenedEngine]:
        self.names.append("asked for")
        raise BadInputError("the engine did not start: no memory")
        yield


def test_one_that_does_not_start_is_an_error_and_is_not_started_for_each_scenario() -> None:
    opened = Broken()
    with pytest.raises(BadInputError, match="did not start: no memory"):
        judged(opened, lambda engine, scenario: None, "abcd")
    assert opened.names == ["asked for"]


def test_an_engine_that_is_ended_is_not_started_anew_for_who_still_asks() -> None:
    opened = Opened()
    begun, ended = Event(), Event()

    def judge(engine: OpenedEngine, scenario: Scenario) -> ReleaseVerdict:
        begun.set()
        assert ended.wait(60)
        raise ServerLost(GONE)  # as it is when its process is killed

    with in_threads(2) as in_order:
        with pytest.raises(KeyboardInterrupt), ReopenedEngine(CELL, opened, judge) as engine:
            in_order(engine.judge, map(scenario, "abcd"))
            begun.wait(60)
            raise KeyboardInterrupt
        ended.set()
    assert opened.names == ["0.0", "0.1"]
