"""What the reference observes at each boundary: fields, types, shapes, and values by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.history.observe import Boundary, Observation
from racegate.scenario.settings import CacheMode, DrafterKind, LayerKind, Numerics, Zeroing
from racegate.scenario.spec import OwnScenario, Preempt
from racegate_reference.decoding import truth
from racegate_reference.engine import run_reference
from racegate_reference.model import Recurrent, build_model
from racegate_reference.recompute import recompute
from reference_scenarios import SMALL, busy, request, scenario
from support import JUDGED


def test_observations_come_in_order() -> None:
    run = run_reference(busy())
    steps = [o.step for o in run.observations if o.boundary is Boundary.SCHEDULED]
    executed = [o for o in run.observations if o.boundary is not Boundary.PROCESSED]
    processed = [o.step for o in run.observations if o.boundary is Boundary.PROCESSED]
    order = [Boundary.SCHEDULED, Boundary.PREPARED, Boundary.INPUTS, Boundary.SAMPLED]
    assert [(o.step, o.boundary) for o in executed] == [(s, b) for s in steps for b in order]
    assert processed == steps
    # Depth 2: step s is processed when step s + 1 has run.
    places = [(o.step, o.boundary) for o in run.observations]
    assert places.index((0, Boundary.PROCESSED)) == places.index((1, Boundary.SAMPLED)) + 1


DRAFT_LENS = {
    DrafterKind.NONE: 0,
    DrafterKind.SCRIPTED: 2,
    DrafterKind.MTP: 2,
    DrafterKind.NGRAM: 2,
    DrafterKind.EXTRACT_HIDDEN_STATES: 1,
}


@pytest.mark.parametrize("numerics", JUDGED)
@pytest.mark.parametrize("cache_mode", CacheMode)
@pytest.mark.parametrize("drafter", DrafterKind)
@pytest.mark.parametrize("zeroing", Zeroing)
def test_fields_have_their_types_and_shapes(
    numerics: Numerics, cache_mode: CacheMode, drafter: DrafterKind, zeroing: Zeroing
) -> None:
    of = busy(
        model=msgspec.structs.replace(SMALL, numerics=numerics),
        cache_mode=cache_mode,
        drafter=drafter,
        draft_len_max=DRAFT_LENS[drafter],
        zeroing=zeroing,
    )
    by_step: dict[int, dict[Boundary, Observation]] = {}
    for observation in run_reference(of).observations:
        by_step.setdefault(observation.step, {})[observation.boundary] = observation
    for step, observations in by_step.items():
        plan = observations[Boundary.SCHEDULED].values["plan"]
        expected = expected_arrays(of, rows=len(plan), tokens=sum(n for _, n, _ in plan))
        if cache_mode is CacheMode.OFFLOAD:
            loaded = sum(LOADED.get((name, step), 0) for name, _, _ in plan)
            expected[Boundary.INPUTS] |= loaded_arrays(expected[Boundary.SAMPLED], loaded)
        for boundary, observation in observations.items():
            values = dict(observation.values)
            for name, types in PLAIN_FIELDS[boundary].items():
                check_plain(values.pop(name), types)
            assert set(values) == set(expected[boundary])
            for name, (dtype, shape) in expected[boundary].items():
                assert (values[name].dtype, values[name].shape) == (dtype, shape), name


INT_BY_REQUEST = (dict, str, int)
TUPLE_BY_REQUEST = (dict, str, tuple)
PLAIN_FIELDS: dict[Boundary, dict[str, tuple[type, ...]]] = {
    Boundary.SCHEDULED: {
        "plan": (tuple, tuple),
        "preempted": (tuple, str),
        "block_table": TUPLE_BY_REQUEST,
        "state_table": TUPLE_BY_REQUEST,
    },
    Boundary.PREPARED: {"rows": (tuple, str)},
    Boundary.INPUTS: {},
    Boundary.SAMPLED: {},
    Boundary.PROCESSED: {
        "delivered": TUPLE_BY_REQUEST,
        "computed": INT_BY_REQUEST,
        "placeholders": INT_BY_REQUEST,
    },
}


def check_plain(value: Any, types: tuple[type, ...]) -> None:
    assert type(value) is types[0]
    if types[0] is dict:
        assert {(type(key), type(item)) for key, item in value.items()} <= {types[1:]}
    else:
        assert {type(item) for item in value} <= {types[1]}


Arrays = dict[str, tuple[Any, tuple[int, ...]]]


def expected_arrays(of: OwnScenario, *, rows: int, tokens: int) -> dict[Boundary, Arrays]:
    """Boundary -> field -> (dtype, shape) of a step with R rows and T tokens."""
    spec, k = of.model, of.engine.draft_len_max
    numbers = np.dtype(np.uint32 if spec.numerics is Numerics.EXACT else np.float64)
    ints = np.dtype(np.int32)
    hp, hn = spec.heads * spec.head_size, spec.heads * spec.state_size
    channels = {LayerKind.MAMBA2: hp + 2 * spec.state_size, LayerKind.GATED_DELTA: 2 * hn + hp}
    state_shape = (spec.heads, spec.head_size, spec.state_size)
    per_row, per_token = (ints, (rows,)), (ints, (tokens,))
    inputs: Arrays = dict.fromkeys(("computed", "accepted", "seq_lens"), per_row)
    inputs |= dict.fromkeys(("positions", "slot_mapping", "input_ids"), per_token)
    inputs["query_start"] = (ints, (rows + 1,))
    if of.engine.zeroing is Zeroing.FRESH:
        inputs["fresh_dirty"] = per_row
    sampled: Arrays = dict.fromkeys(("accepted", "valid_count", "next_token"), per_row)
    sampled |= {"sampled": (ints, (rows, 1 + k)), "drafts": (ints, (rows, k))}
    for index, kind in enumerate(spec.layers):
        if kind is LayerKind.ATTENTION:
            sampled[f"kv.{index}"] = (numbers, (tokens, 2 * hp))
            continue
        conv = (numbers, (rows, channels[kind], spec.conv_width - 1))
        inputs |= {f"state.{index}": (numbers, (rows, *state_shape)), f"conv.{index}": conv}
        sampled |= {f"state.{index}": (numbers, (rows, 1 + k, *state_shape))}
        sampled |= {f"conv.{index}": conv}
        if of.engine.cache_mode is not CacheMode.NONE:
            sampled[f"checkpoint.{index}"] = (numbers, (rows, *state_shape))
    entries: dict[DrafterKind, tuple[Any, int]] = {
        DrafterKind.MTP: (numbers, 2 * hp),
        DrafterKind.NGRAM: (ints, 1),
        DrafterKind.SCRIPTED: (np.dtype(np.uint32), 1),
        DrafterKind.EXTRACT_HIDDEN_STATES: (numbers, spec.hidden_size + 1),
    }
    if of.engine.drafter in entries:
        dtype, width = entries[of.engine.drafter]
        sampled["draft_kv"] = (dtype, (tokens, width))
    return {
        Boundary.SCHEDULED: {},
        Boundary.PREPARED: {
            "discarded": (np.dtype(bool), (rows,)),
            "backup_token": per_row,
            "accept_target": per_row,
        },
        Boundary.INPUTS: inputs,
        Boundary.SAMPLED: sampled,
        Boundary.PROCESSED: {},
    }


# C arrives when A's prompt is saved; B comes back after its preemption.
LOADED = {("C", 4): 8, ("B", 7): 4}


def loaded_arrays(sampled: Arrays, loaded: int) -> Arrays:
    """The loaded entries are like those that a step keeps, but as many as were loaded."""
    return {
        f"loaded_{name}": (dtype, (loaded, *shape[1:]))
        for name, (dtype, shape) in sampled.items()
        if name.split(".")[0] in ("kv", "draft_kv")
    }


def step_values(of: OwnScenario, step: int) -> dict[Boundary, Any]:
    run = run_reference(of)
    return {o.boundary: o.values for o in run.observations if o.step == step}


def test_values_of_a_step_by_hand() -> None:
    """One request, prompt 1 .. 5, k = 3; step 1 accepts 2 of 3 drafts and crosses no boundary."""
    of = scenario(request(prompt_len=5, accepts=(3, 1)), draft_len_max=3, block_size=4)
    tokens = truth(of)["A"]
    first, second = step_values(of, 0), step_values(of, 1)
    assert first[Boundary.SCHEDULED]["plan"] == (("A", 5, 0),)
    assert first[Boundary.INPUTS]["accepted"].tolist() == [1]
    assert first[Boundary.PREPARED]["accept_target"].tolist() == [3]
    drafts = first[Boundary.SAMPLED]["drafts"][0].tolist()
    assert drafts[:2] == list(tokens[6:8])
    assert drafts[2] != tokens[8]
    inputs = second[Boundary.INPUTS]
    assert inputs["computed"].tolist() == [5]
    assert inputs["seq_lens"].tolist() == [9]
    assert inputs["query_start"].tolist() == [0, 4]
    assert inputs["positions"].tolist() == [5, 6, 7, 8]
    # Table (1, 2, 3): position 5 is in block 2, position 8 in block 3.
    assert inputs["slot_mapping"].tolist() == [9, 10, 11, 12]
    assert inputs["input_ids"].tolist() == [tokens[5], *drafts]
    sampled = second[Boundary.SAMPLED]
    assert sampled["sampled"].tolist() == [[*tokens[6:9], -1]]
    assert (sampled["accepted"].tolist(), sampled["valid_count"].tolist()) == ([3], [3])
    assert sampled["next_token"].tolist() == [tokens[8]]
    # The next step starts from the third snapshot.
    assert step_values(of, 2)[Boundary.INPUTS]["accepted"].tolist() == [3]
    assert step_values(of, 2)[Boundary.INPUTS]["computed"].tolist() == [8]
    model = build_model(of.model)
    for index in (0, 1):
        for place, length in enumerate((6, 7, 8)):
            layer = recompute(model, tokens[:length]).state[index]
            assert isinstance(layer, Recurrent)
            np.testing.assert_array_equal(sampled[f"state.{index}"][0, place], layer.state)
        np.testing.assert_array_equal(sampled[f"conv.{index}"][0], layer.conv)
        assert not sampled[f"state.{index}"][0, 3].any()
    # Three of four inputs were kept.
    assert [bool(row.any()) for row in sampled["kv.2"]] == [True, True, True, False]
    assert [bool(row.any()) for row in sampled["draft_kv"]] == [True, True, True, False]


def test_targets_are_counted_over_all_incarnations() -> None:
    """Targets 1, 2, 3, 4 and 1 again; the chunk of step 0 counts for none of them."""
    of = scenario(
        request(prompt_len=5, accepts=(1, 2, 3, 4), max_tokens=30),
        events=(Preempt(step=3, request="A"),),
        depth=1,
        prefill_chunk_max=4,
        draft_len_max=2,
    )
    targets = [
        o.values["accept_target"].tolist()
        for o in run_reference(of).observations
        if o.boundary is Boundary.PREPARED
    ]
    # Step 3 starts the new incarnation with a chunk. Targets are at most 1 + k.
    assert targets[:7] == [[1], [1], [2], [1], [3], [3], [1]]


def test_values_of_a_discarded_row() -> None:
    of = scenario(request(prompt_len=7), draft_len_max=2, prefill_chunk_max=4)
    values = step_values(of, 0)
    assert values[Boundary.PREPARED]["discarded"].tolist() == [True]
    assert values[Boundary.PREPARED]["backup_token"].tolist() == [5]
    assert values[Boundary.PREPARED]["accept_target"].tolist() == [1]
    sampled = values[Boundary.SAMPLED]
    assert sampled["sampled"].tolist() == [[-1, -1, -1]]
    assert sampled["drafts"].tolist() == [[-1, -1]]
    assert (sampled["accepted"].tolist(), sampled["valid_count"].tolist()) == ([1], [0])
    assert sampled["next_token"].tolist() == [5]
    layer = recompute(build_model(of.model), [1, 2, 3, 4]).state[0]
    assert isinstance(layer, Recurrent)
    np.testing.assert_array_equal(sampled["state.0"][0, 0], layer.state)
    assert not sampled["state.0"][0, 1:].any()
    # Processing a chunk changes nothing; step 1 has been scheduled by then.
    assert values[Boundary.PROCESSED] == {
        "delivered": {"A": ()},
        "computed": {"A": 7},
        "placeholders": {"A": 1},
    }


def test_extract_hidden_states_counts_discarded_rows() -> None:
    of = scenario(
        request(prompt_len=7),
        draft_len_max=1,
        prefill_chunk_max=4,
        drafter=DrafterKind.EXTRACT_HIDDEN_STATES,
    )
    sampled = step_values(of, 0)[Boundary.SAMPLED]
    assert (sampled["accepted"].tolist(), sampled["valid_count"].tolist()) == ([1], [1])


def test_align_resets_the_count_when_the_state_moves() -> None:
    """Interval 4, prompt 5, all of k = 1 drafts accepted."""
    of = scenario(
        request(prompt_len=5, accepts=(2,)),
        draft_len_max=1,
        block_size=4,
        state_interval=4,
        cache_mode=CacheMode.ALIGN,
    )
    # Chunks 4 and 1 end in columns 0 and 1; the steps from 5, 7, 9 end at 7, 9, 11.
    starts = [step_values(of, step)[Boundary.INPUTS]["computed"].tolist() for step in range(5)]
    assert starts == [[0], [4], [5], [7], [9]]
    counts = [step_values(of, step)[Boundary.INPUTS]["accepted"].tolist() for step in range(5)]
    # From 7 to 9 the state moves from column 1 to 2; from 9 to 11 it stays.
    assert counts == [[1], [1], [1], [1], [2]]
    # The step from 7 accepts both inputs and leaves the boundary 8 behind.
    checkpoints = [step_values(of, s)[Boundary.SAMPLED]["checkpoint.0"][0] for s in range(5)]
    assert [bool(state.any()) for state in checkpoints] == [True, False, False, True, False]
    tokens = truth(of)["A"]
    layer = recompute(build_model(of.model), tokens[:8]).state[0]
    assert isinstance(layer, Recurrent)
    np.testing.assert_array_equal(checkpoints[3], layer.state)
