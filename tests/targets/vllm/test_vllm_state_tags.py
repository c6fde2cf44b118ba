"""Tags of recurrent states: what a layer reads and writes in a step, and what is true of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racegate.scenario.spec import Request, Scenario
from racegate.targets.vllm.inside.scripted.model import Script
from racegate.targets.vllm.inside.tiers.states import (
    StateRow,
    go_on,
    state_bytes,
    state_rows,
    states_of,
)
from racegate.targets.vllm.inside.truth.course import Course
from racegate.targets.vllm.wire import tag_behind, tag_of


def told(**of: list[Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values) for name, values in of.items()}


# Two rows with drafts, and between them a prompt that begins and a chunk that goes on.
MIXED = told(
    spec_query_start_loc=[0, 2, 5],
    spec_state_indices_tensor=[[3, 4, 5], [6, 7, 8]],
    num_accepted_tokens=[1, 3],
    spec_token_indx=[0, 1, 6, 7, 8],
    non_spec_query_start_loc=[0, 3, 4],
    non_spec_state_indices_tensor=[9, 10],
    non_spec_token_indx=[2, 3, 4, 5],
    prefill_query_start_loc=[0, 3, 4],
    prefill_state_indices=[9, 10],
    prefill_has_initial_state=[False, True],
)


def test_rows_with_drafts_write_a_state_behind_each_token_and_read_that_of_the_last_accepted() -> (
    None
):
    rows = {one.row: one for one in state_rows(MIXED, [True, False, False, True])}
    assert rows[0] == StateRow(0, 3, (0, 1), (3, 4))
    assert rows[3] == StateRow(3, 8, (6, 7, 8), (6, 7, 8))


def test_prompts_write_one_state_and_go_on_from_it_if_they_have_begun() -> None:
    rows = {one.row: one for one in state_rows(MIXED, [True, False, False, True])}
    assert rows[1] == StateRow(1, None, (2, 3, 4), (None, None, 9))
    assert rows[2] == StateRow(2, 10, (5,), (10,))


def test_a_step_of_single_tokens_has_no_places_and_no_beginnings() -> None:
    alone = told(non_spec_query_start_loc=[0, 1, 2], non_spec_state_indices_tensor=[4, 2])
    assert state_rows(alone, [False, False]) == [
        StateRow(0, 4, (0,), (4,)),
        StateRow(1, 2, (1,), (2,)),
    ]


def test_prompts_behind_rows_that_decode_have_slots_of_their_own() -> None:
    both = told(
        non_spec_query_start_loc=[0, 1, 4, 6],
        non_spec_state_indices_tensor=[4, 8, 9],
        prefill_query_start_loc=[0, 3, 5],
        prefill_state_indices=[2, 3],
        prefill_has_initial_state=[False, True],
    )
    assert state_rows(both, [False, False, False], 1) == [
        StateRow(0, 4, (0,), (4,)),
        StateRow(1, None, (1, 2, 3), (None, None, 2)),
        StateRow(2, 3, (4, 5), (None, 3)),
    ]


@given(st.lists(st.integers(0, 2047), min_size=2, max_size=12), st.data())
def test_a_state_is_that_of_all_its_tokens_however_they_are_cut(
    tokens: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(tokens) - 1))
    memory = torch.full((4,), 77)
    places = tuple(range(len(tokens)))
    first = StateRow(0, None, places[:cut], (*[None] * (cut - 1), 2))
    assert go_on(memory, first, torch.tensor(tokens)) == 0
    rest = places[cut:]
    second = StateRow(0, 2, rest, (*[None] * (len(rest) - 1), 3))
    assert go_on(memory, second, torch.tensor(tokens)) == tag_of(tokens[:cut])
    assert memory.tolist() == [77, 77, tag_of(tokens[:cut]), tag_of(tokens)]


def test_slots_that_are_none_are_left_alone() -> None:
    memory = torch.zeros(2, dtype=torch.int64)
    assert go_on(memory, StateRow(0, -1, (0,), (5,)), torch.tensor([3])) == 0
    assert memory.tolist() == [0, 0]
    reads, writes = state_bytes(memory, [StateRow(0, -1, (0, 1), (1, 5))])
    base = memory.data_ptr()
    assert reads == () and writes == ((base + 8, base + 16),)


def test_layers_with_a_pair_of_states_have_tags_and_a_copy_of_a_slot_has_them_too() -> None:
    states = torch.zeros((3, 2, 4, 4))
    layers = {
        "recurrent": SimpleNamespace(kv_cache=(torch.zeros(3, 8), states)),
        "attention": SimpleNamespace(kv_cache=torch.zeros((3, 2, 16, 1, 4))),
        "drafter's": SimpleNamespace(kv_cache=(torch.zeros(3, 8), states)),
    }
    own = [layers["recurrent"], layers["attention"]]
    runner = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=layers),
        get_model=lambda: SimpleNamespace(modules=lambda: own),
    )
    found = states_of(runner)
    assert list(found) == ["recurrent"]
    found["recurrent"][1] = tag_of([5, 6])
    states[2] = states[1]
    assert found["recurrent"].tolist() == [0, tag_of([5, 6]), tag_of([5, 6])]


@pytest.mark.parametrize("drafts", [0, 3])
def test_what_a_request_goes_on_from_are_its_tokens_whatever_stood_behind_them(drafts: int) -> None:
    request = Request(name="A", arrive=0, prompt=(5,), max_tokens=9, accepts=(2,))
    says = Script(Scenario(name="s", title="t", requests=(request,)), draft_len=3)
    course = Course(says, most=64)
    said = {"tokens": 1 + drafts, "drafts": drafts, "computed": 0, "known": 1, "blocks": [[1]]}
    (first,) = course.step(1, {"A": said}).values()
    later = {"tokens": 4, "drafts": 3, "computed": 1, "known": None, "blocks": [[1]]}
    (second,) = course.step(2, {"A": later}).values()
    assert course.state(first) == 0
    assert course.state(second) == tag_behind(0, says.prompt(0)[0])
