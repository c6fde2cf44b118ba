"""A real release, where one is set up: `make test-vllm`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from racegate.history.finding import Verdict
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Plan
from racegate.scenario.files import load_for
from racegate.targets.common.judge import judge
from racegate.targets.common.search import Effect
from racegate.targets.common.sensitivity import Pulse
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import open_cell
from racegate.targets.vllm.environment import VLLM
from racegate.targets.vllm.sensitivity import sensitivity_of
from racegate.targets.vllm.wire import LayerMode, ModelRunner, StateMode

CELL = Cell(release="0.22.1", runner=ModelRunner.V1, mode=StateMode.NONE)
SCENARIO = Path(__file__).parents[3] / "scenarios" / "vllm" / "first_decode_in_moved_row.toml"
COPY = "d2h input_batch.num_accepted_tokens_cpu_tensor@_update_states_after_model_execute"
WRONG = ("accepted count of request B in row 0", 4, 1)


def demand_installed() -> None:
    try:
        VLLM.environment_of(CELL.release)
    except BadInput as error:
        pytest.skip(str(error))


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_a_search_finds_the_public_race(tmp_path: Path) -> None:
    """vllm#45100: right when nothing is held, wrong when the copy lands between the row moves. And
    a wrong value of each kind that is planted is seen.
    """
    scenario, log = load_for("vLLM", SCENARIO), tmp_path / "vllm.log"
    demand_installed()
    with open_cell(CELL, log=log) as engine:
        judged = judge(engine, scenario, CELL, sensitivity=sensitivity_of(engine))
    told, search = judged.shown, judged.search
    assert told.ending is Ending.FINISHED, log.read_text()[-2000:]
    assert told.delivered == told.plain and told.wrong == () and judged.unmet == ()
    assert set(judged.sensitivity.values()) == {Pulse.ALIVE}
    assert judged.verdict is Verdict.DIVERGENT and search is not None and search.is_complete
    harmful = [found for found in search.races if found.effect is Effect.WRONG]
    assert {found.race.first.label.partition("#")[0] for found in harmful} == {COPY}
    landed = [found.landing.what.wrong for found in harmful if found.landing is not None]
    assert len(landed) == len(harmful)
    assert {(w.what, w.used, w.true) for wrong in landed for w in wrong} == {WRONG}
    with open_cell(CELL, log=log) as engine:  # it knows what kernels did in the one before
        again = engine.run(scenario, Plan())
    assert (again.seen, again.findings) == (judged.base.seen, judged.base.findings)
    assert [one.preview for one in again.inner] == [one.preview for one in judged.base.inner]
    chosen = [one.preview for one in again.inner if one.name.endswith("kept for the runner")]
    assert '"finished_req_ids":["B","P"]' in chosen[-1], "a step without requests tells who ended"


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_states_of_mamba2_stand_where_they_should(tmp_path: Path) -> None:
    """With every value of a kind that is planted seen, as in the other model."""
    scenario, log = load_for("vLLM", SCENARIO), tmp_path / "vllm.log"
    demand_installed()
    cell = msgspec.structs.replace(CELL, layers=LayerMode.MAMBA2)
    with open_cell(cell, log=log) as engine:
        pulses = sensitivity_of(engine)
        told = engine.run(scenario, Plan())
    assert told.ending is Ending.FINISHED, log.read_text()[-2000:]
    assert (told.delivered, told.untrue, told.wrong) == (told.plain, (), ())
    assert set(pulses.values()) == {Pulse.ALIVE}
    slots = ("metadata.state_indices_tensor_d", "metadata.state_indices_tensor_p")
    assert all(told.compared[name] for name in slots)
