"""What the recording probe keeps: only blocks that the plan names, read early or late."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.device.virtual.storage import VirtualSnapshot
from racegate.engine.observe.probe_blocks import BlockRows
from racegate.engine.state.blocks import PoolView
from racegate.history.observe import Observation
from racegate.oracles.invariants import find_violations
from racegate.oracles.stepwise import find_divergence
from support import scenario as _scenario

NAMES = ("steady_mixed_accepts", "align_boundary_and_prefix_hit", "offload_save_and_load")


def _size(observations: Sequence[Observation]) -> int:
    """Array elements and viewed blocks in all."""
    size = 0
    for observation in observations:
        for value in (*observation.values.values(), *observation.detail.values()):
            if isinstance(value, np.ndarray):
                size += value.size
            elif isinstance(value, PoolView):
                size += len(value.blocks) + len(value.free) + len(value.published)
    return size


@pytest.mark.parametrize("name", NAMES)
def test_larger_pools_are_not_more_to_keep(name: str) -> None:
    scenario = _scenario(name)
    engine = msgspec.structs.replace(
        scenario.engine,
        blocks=4 * scenario.engine.blocks,
        state_blocks=4 * scenario.engine.state_blocks,
    )
    larger = msgspec.structs.replace(scenario, engine=engine)
    sizes = [_size(Checker(one).execute().observations) for one in (scenario, larger)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_early_is_what_is_read_late(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Checker(_scenario(name))
    early = checker.execute().observations
    monkeypatch.setattr(VirtualSnapshot, "is_readable", False)
    late = checker.execute().observations
    assert find_divergence(early, late) is None
    assert find_divergence(late, early) is None
    assert find_violations(late, checker.scenario) == []
    assert _size(early) == _size(late)


def test_rows_of_blocks_are_those_of_the_copy() -> None:
    rows = BlockRows([(7, 3), (), (3, 12)])
    assert rows.blocks.tolist() == [3, 7, 12]
    assert rows.rows_of(np.array([12, 3, 7, 3])).tolist() == [2, 0, 1, 0]
