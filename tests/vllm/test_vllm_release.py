"""A real release, where one is set up: `racegate vllm setup --release 0.22.1` (about 5 GB)."""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending, Plan
from racegate.scenario.files import load
from racegate.vllm.client import open_engine
from racegate.vllm.environment import Environment, environment_of
from racegate.vllm.judge import unmet_expectations
from racegate.vllm.wire import Runner, StateMode

RELEASE = "0.22.1"
SCENARIO = Path(__file__).parents[2] / "scenarios" / "vllm" / "first_decode_in_moved_row.toml"
COPY = "d2h input_batch.num_accepted_tokens_cpu_tensor@_update_states_after_model_execute#4"
MOVE = "host read (numpy) input_batch.num_accepted_tokens_cpu_tensor@swap_states#1"


def installed() -> Environment:
    try:
        return environment_of(RELEASE)
    except BadInput as error:
        pytest.skip(str(error))


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_a_held_copy_gives_a_request_the_count_of_another(tmp_path: Path) -> None:
    """vllm#45100: right when nothing is held, wrong when the copy lands between the row moves."""
    scenario = load(SCENARIO)
    log = tmp_path / "vllm.log"
    with open_engine(installed(), runner=Runner.V1, mode=StateMode.NONE, log=log) as engine:
        eager = engine.run(scenario, Plan())
        held = engine.run(scenario, Plan(holds=((COPY, MOVE),), is_recording=False))
    assert eager.outcome.ending is Ending.FINISHED, log.read_text()[-2000:]
    assert eager.delivered == eager.plain and eager.wrong == ()
    assert unmet_expectations(scenario, eager) == ()
    assert COPY in {first for found in eager.outcome.findings for first, _ in found.pairs}
    assert [(w.what, w.used, w.true) for w in held.wrong] == [
        ("accepted count of request B in row 0", 4, 1)
    ]
