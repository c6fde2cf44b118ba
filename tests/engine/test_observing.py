"""What observers are told of a run: all that the reference says, and of new blocks, rows and places
what really stands there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.engine.observe.details import _up_to_last
from racegate.engine.observe.probe_blocks import BlockRows, FreshTaken, of_rows
from racegate.engine.observe.recording import RecordingProbe
from racegate.faults.catalogue import find_fault
from racegate.history.finding import FindingKind, Verdict
from racegate.history.observe import Observation
from racegate.history.schedule import parse_schedule
from racegate.scenario.settings import EngineSpec
from racegate_kernels.poison import POISON_I32
from support import scenario

# One for each kind of thing that is observed.
SCRIPTS = (
    "fresh_blocks_zeroed",
    "slots_fresh_blocks",
    "align_boundary_and_prefix_hit",
    "all_middle_hit",
    "offload_save_and_load",
    "mrope_images_and_prefixes",
    "drawn_drafts",
    "mtp_drafter",
    "cascade_prefix_hits",
    "depth_three",
)
# Seeded faults whose first wrong value stands in a field of its own.
SHOWN = (
    "zero-list-restage",
    "zero-after-load",
    "boundary-migration-wrong",
    "draft-scatter-wrong-rows",
    "late-frame-misapplied",
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_observed_is_what_the_reference_says(name: str) -> None:
    checker = Checker(scenario(name))
    result = checker.run()
    assert result.verdict is Verdict.PROVED, result.findings
    assert result.stats.boundaries > 0


@pytest.mark.parametrize("name", SHOWN)
def test_a_wrong_value_is_observed_where_it_is_first(name: str) -> None:
    fault = find_fault(name)
    checker = Checker(scenario(fault.scenarios[0]))
    schedule = parse_schedule(fault.holds.get(fault.scenarios[0], ()))
    found = checker.run(schedule=schedule, fault=fault).findings
    wrong = [one for one in found if one.kind is FindingKind.DIVERGENCE]
    assert [one.field for one in wrong[:1]] == [fault.expect]


def test_observations_from_one_on_are_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[RecordingProbe] = []
    observations = RecordingProbe.observations

    def kept(self: RecordingProbe, *, first: int = 0) -> tuple[Observation, ...]:
        probes.append(self)
        return observations(self, first=first)

    monkeypatch.setattr(RecordingProbe, "observations", kept)
    every = Checker(scenario("steady_mixed_accepts")).execute().observations
    probe = probes[-1]
    assert probe.count == len(every) > 20
    for first in (0, 1, 7, probe.count):
        assert [id(one) for one in observations(probe, first=first)] == [
            id(one) for one in observations(probe)[first:]
        ]


def an_entry(blocks: tuple[int, ...], states: tuple[int, ...], *, loaded: int) -> Any:
    return SimpleNamespace(
        blocks=blocks,
        state_blocks=states,
        fresh_blocks=blocks,
        fresh_state_blocks=states,
        loaded=loaded,
    )


def test_new_blocks_that_are_not_zero_count_for_their_row_in_either_kind_of_pool() -> None:
    """What was loaded is new as well, and holds a prefix: it is not looked at."""
    entries = [an_entry((5, 6, 7), (11, 12), loaded=8), an_entry((8,), (13, 14), loaded=0)]
    view: Any = SimpleNamespace(shape=SimpleNamespace(rows=2), entries=entries)
    taken = FreshTaken(view, EngineSpec(block_size=4, state_interval=8))
    assert (taken.blocks, taken.state_blocks) == ([7, 8], [12, 13, 14])
    clean = np.zeros((2, 4, 3), np.int32)
    states = np.zeros((3, 2), np.uint32)
    taken.arrays = {"kv": clean, "draft_kv": clean.copy(), "state:state.0": states}
    assert taken.dirty().tolist() == [0, 0]
    taken.arrays["draft_kv"][1, 3, 2] = 1
    assert taken.dirty().tolist() == [0, 1]
    states[0, 1] = states[2, 0] = 9
    assert taken.dirty().tolist() == [1, 2]
    taken.arrays["kv"] = taken.arrays["draft_kv"].copy()
    assert taken.dirty().tolist() == [1, 2], "a block counts once, in however many pools"


@given(st.lists(st.integers(-2, 4), min_size=1, max_size=5))
def test_a_row_outside_is_poison_and_an_empty_one_zero(index: list[int]) -> None:
    choices = np.arange(3 * len(index), dtype=np.int32).reshape(len(index), 3)
    is_empty = np.arange(len(index)) % 2 == 1
    wanted = [
        0 if empty else int(choices[row, at]) if 0 <= at < 3 else POISON_I32
        for row, (at, empty) in enumerate(zip(index, is_empty, strict=True))
    ]
    assert of_rows(choices, np.array(index), is_empty).tolist() == wanted


def test_blocks_that_no_table_names_are_poison_before_between_and_behind_those_that_one_does() -> (
    None
):
    rows = BlockRows([(3, 7)])
    content = np.array([[30], [70]], np.int32)
    picked = rows._picked(content, np.array([7, 9, 3, 5, 0]))
    assert picked[:, 0].tolist() == [70, POISON_I32, 30, POISON_I32, POISON_I32]


@pytest.mark.parametrize(("named", "rows", "kept"), [(5, 2, 7), (0, 3, 4), (1, 1, 3), (7, 2, 8)])
def test_a_table_is_kept_up_to_its_last_row_that_names_a_block(
    named: int, rows: int, kept: int
) -> None:
    """And one more, which stands for those behind it, if there is one."""
    table = np.zeros((8, 3), np.int32)
    table[named, 2] = 4
    found = _up_to_last(table, rows)
    assert len(found) == kept and (found == table[:kept]).all()


def test_a_position_behind_a_rows_blocks_is_observed_and_breaks_nothing() -> None:
    """A wrong engine's positions may be anything; what is right beside them is still shown."""
    taken: Any = SimpleNamespace(
        view=SimpleNamespace(entries=[SimpleNamespace(blocks=(2, 5))], query_start=[0, 4]),
        inputs={"positions": np.array([1, 2, 4, 900])},
        blocks=BlockRows([(2, 5)]),
    )
    probe: Any = object.__new__(RecordingProbe)
    probe._engine = SimpleNamespace(block_size=2)
    tokens, found = probe._entries(taken, np.array([1000]))
    assert tokens.tolist() == [0, 1, 2, 3]
    assert found[:2].tolist() == [1, 2]
    assert max(found) < 4  # of two blocks
