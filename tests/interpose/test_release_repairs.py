"""The repair of a race in an engine's source: a script in the place of the engine, which is started
with each candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from cuda_torch import needs_cuda_torch
from racegate.history.exit_code import ExitCode
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Plan, Sources
from racegate.jobs.foreign.releases import OpenedEngine
from racegate.jobs.triage import release_repairs
from racegate.jobs.triage.release_repairs import EditedEngines, repair_release
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.client import Engine
from racegate.targets.common.inside import sources as inside
from racegate.targets.common.wire import SOURCES, ReleaseRun
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repairs.proof import ProgramRepair
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

ENGINE = """import torch
import racegate
counts = torch.zeros(64, device="cuda")
copier = torch.cuda.Stream()
torch.cuda.synchronize()
counts.fill_(3)
with torch.cuda.stream(copier):
    told = counts * 2
torch.cuda.synchronize()
racegate.observe("told", told)
"""
CELL = Cell(release="0.33.0", runner=ModelRunner.V2, mode=StateMode.NONE)
SCENARIO = Scenario(
    name="one", title="", requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),)
)


@dataclass(slots=True)
class ScriptEngines:
    """In the place of `open_release`. refused: what a text has with which nothing starts
    started: with which sources
    """

    device: DeviceServer
    script: Path
    refused: str
    started: list[Sources] = field(default_factory=list)
    sources: Sources = ()

    @contextmanager
    def __call__(
        self, cell: EngineCell, *, log: Path | None = None, sources: Sources = ()
    ) -> Iterator[OpenedEngine]:
        self.started.append(sources)
        if any(self.refused and self.refused in text for _, text in sources):
            raise BadInput("the engine did not start")
        self.sources = sources
        yield OpenedEngine(cell, self, cast(Engine, SimpleNamespace()), dict)

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """As a release answers."""
        program = Program((str(self.script),), sources=self.sources)
        ran = self.device.run(program, plan, is_quiet=True)
        return ReleaseRun(**{name: getattr(ran, name) for name in ran.__struct_fields__})


def repaired(
    device: DeviceServer, folder: Path, monkeypatch: pytest.MonkeyPatch, refused: str = ""
) -> tuple[ProgramRepair, list[Sources]]:
    script = folder / "engine.py"
    script.write_text(ENGINE)
    engines = ScriptEngines(device, script, refused)
    monkeypatch.setattr(release_repairs, "open_release", engines)
    found = repair_release(EditedEngines(CELL, SCENARIO, None), runs_max=60, landings_max=9)
    return found, engines.started


@needs_cuda_torch
def test_an_edge_is_put_into_the_engine_and_proved_by_its_judge(
    device: DeviceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, started = repaired(device, tmp_path, monkeypatch)
    assert [edge.waiter for edge in found.edges] == ["stream"]
    assert (found.after, found.left, found.exit_code) == ("PROVED", (), ExitCode.CLEAN)
    assert found.edges[0].without == found.conflicts
    assert found.edges[0].operations > 0
    assert "+" in found.diff and "engine.py" in found.diff
    assert (tmp_path / "engine.py").read_text() == ENGINE
    assert started[0] == () and started.count(()) == 1  # both recorded runs are of one start


@needs_cuda_torch
def test_an_engine_that_does_not_start_with_an_edge_refuses_it(
    device: DeviceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = repaired(device, tmp_path, monkeypatch, refused="wait")
    assert (found.edges, found.exit_code) == ((), ExitCode.FINDING)
    assert any("the engine did not start" in text for text in found.left[0].tried)


def test_an_engine_reads_the_texts_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Sources] = []
    monkeypatch.setattr(inside, "read_instead", read.append)
    assert inside.read_texts(tmp_path) == ()
    texts = (("/engine.py", "pass\n"),)
    (tmp_path / SOURCES).write_bytes(msgspec.json.encode(texts))
    assert inside.read_texts(tmp_path) == texts
    assert read == [texts]
