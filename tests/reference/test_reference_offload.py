"""Saved prefixes: what enters the store and what a hit takes from it, on examples by hand.

The interval is 4 and a block 2 everywhere. Prompts are 1, 2, 3, ..., so equal up to their length.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from racegate.history.observe import Boundary
from racegate.scenario.settings import (
    CacheMode,
    DrafterKind,
    EngineSpec,
    LayerKind,
    Numerics,
    TransferMode,
)
from racegate.scenario.spec import Abort, Event, OwnScenario, Preempt, Request, Rotate
from racegate_reference.blocks import Blocks, Hit
from racegate_reference.decoding import truth
from racegate_reference.engine import Engine, run_reference
from racegate_reference.model import Cache, Recurrent, build_model
from racegate_reference.recompute import recompute
from racegate_reference.store import Store
from reference_runs import NO_DRAFTS, iterations, observed, plans
from reference_scenarios import SMALL, request, scenario
from support import JUDGED

PROMPT = tuple(range(1, 10))


def offload(*requests: Request, events: tuple[Event, ...] = (), **engine: Any) -> OwnScenario:
    """Depth 2, k = 1 unless given otherwise."""
    fields = {"depth": 2, "draft_len_max": 1, "block_size": 2, "state_interval": 4, **engine}
    return scenario(*requests, events=events, cache_mode=CacheMode.OFFLOAD, **fields)


def finished(of: OwnScenario) -> Engine:
    """The engine at the end of its run."""
    *_, engine = iterations(of)
    assert engine.done
    return engine


# The store and the blocks of a hit


def test_the_store_finds_the_longest_prefix_that_leaves_a_token() -> None:
    store = Store(4)
    assert store.longest(PROMPT) == 0
    store.save(PROMPT, 8)
    assert store.keys == (PROMPT,)
    assert store.longest(PROMPT) == store.longest((*PROMPT, 99)) == 8
    # The token behind the prefix is part of the key, and must be known.
    assert store.longest((*PROMPT[:8], 99)) == store.longest(PROMPT[:8]) == 0
    # Saving 8 did not save 4.
    store.save(PROMPT, 4)
    assert [store.longest(PROMPT[:length]) for length in (4, 5, 8, 9)] == [0, 4, 4, 8]


def test_a_key_in_the_store_stays_as_it_is() -> None:
    store = Store(4)
    store.save(PROMPT, 8)
    store.save(PROMPT, 4)
    before = store.keys
    store.save((*PROMPT, 99), 8)
    assert store.keys == before == (PROMPT, PROMPT[:5])


def test_a_hit_is_loaded_into_own_blocks() -> None:
    blocks = Blocks(
        EngineSpec(
            block_size=2,
            blocks=10,
            state_blocks=10,
            state_interval=4,
            draft_len_max=1,
            model_len_max=16,
            cache_mode=CacheMode.OFFLOAD,
        )
    )
    first = blocks.admit(Hit(8), 9)
    assert first is not None
    # cdiv(9 + 1, 2) attention blocks. Column 0 is null, then cdiv(9, 4) + 1 - (2 - 1) new ones.
    assert (first.attention, first.state) == ([1, 2, 3, 4, 5], [0, 1, 2, 3])
    # Nothing is shared: 4 attention blocks are left, too few for 9 tokens and enough for 7.
    assert blocks.admit(Hit(8), 9) is None
    assert (blocks.attention.free, blocks.state.free) == ((6, 7, 8, 9), (4, 5, 6, 7, 8, 9))
    second = blocks.admit(Hit(4), 7)
    assert second is not None
    # Column 0 is the hit's last one: cdiv(7, 4) + 1 new ones and no null.
    assert (second.attention, second.state) == ([6, 7, 8, 9], [4, 5, 6])
    blocks.release(first)
    assert (blocks.attention.free, blocks.state.free) == ((5, 4, 3, 2, 1), (7, 8, 9, 3, 2, 1))
    # The pools know of no prefix.
    assert blocks.hit(PROMPT).length == 0


# Saving


def test_a_chunk_that_ends_on_a_boundary_is_saved_when_it_is_processed() -> None:
    engine = Engine(offload(request(prompt_len=9, max_tokens=20)))
    engine.iterate()
    # Chunk 8 of 9: its frame is in flight.
    assert engine.scheduler.store.keys == ()
    engine.iterate()
    # Only the boundary at its end is saved, with the token behind it.
    assert engine.scheduler.store.keys == (PROMPT,)
    while not engine.done:
        engine.iterate()
    # Decoding crosses 12, 16, 20, 24 and 28, and saves nothing.
    assert len(engine.scheduler.requests["A"].tokens) == 29
    assert engine.scheduler.store.keys == (PROMPT,)


def test_every_chunk_saves_its_own_boundary() -> None:
    engine = finished(offload(request(prompt_len=14), prefill_chunk_max=5))
    # Chunks of 4, 4, 4 and 2.
    prompt = (*range(1, 11), 0, 1, 2, 3)
    assert engine.scheduler.store.keys == (prompt[:5], prompt[:9], prompt[:13])


def test_the_last_chunk_is_not_saved_even_on_a_boundary() -> None:
    """It reaches the last known token, so it is no prefill chunk: it samples."""
    of = offload(request("A", prompt_len=8), prefill_chunk_max=4)
    engine = finished(of)
    assert [plan[0] for plan in plans(run_reference(of)).values()][:2] == [("A", 4, 0)] * 2
    assert engine.scheduler.store.keys == (PROMPT[:5],)
    # The boundary 8 would be hit by whoever goes on as A did; only 4 is there.
    sequel = (*PROMPT[:8], *truth(of)["A"][8:10])
    run = run_reference(
        offload(*of.requests, request("B", prompt=sequel, arrive=6), prefill_chunk_max=64)
    )
    # With a chunk of 8 not even that.
    assert plans(run)[6][-1] == ("B", 8, 0)
    run = run_reference(
        offload(*of.requests, request("B", prompt=sequel, arrive=6), prefill_chunk_max=4)
    )
    assert plans(run)[6][-1] == ("B", 4, 0)
    assert observed(run, Boundary.INPUTS)[6]["computed"].tolist()[-1] == 4


def test_a_key_that_is_there_is_not_saved_again() -> None:
    # Both compute the same chunk in step 0; C hits what A saved.
    of = offload(
        request("A", prompt_len=9),
        request("B", prompt_len=9),
        request("C", prompt_len=9, arrive=2),
    )
    assert finished(of).scheduler.store.keys == (PROMPT,)
    run = run_reference(of)
    assert plans(run)[0] == (("A", 8, 0), ("B", 8, 0))
    assert plans(run)[2][-1] == ("C", 1, 0)


def test_a_stale_chunk_saves_nothing() -> None:
    engine = Engine(
        offload(request(prompt_len=9), events=(Preempt(step=1, request="A"),), **NO_DRAFTS)
    )
    engine.iterate()
    engine.iterate()
    # The frame of step 0 came back as one of an earlier incarnation.
    assert (len(engine.frames), engine.scheduler.store.keys) == (0, ())
    engine.iterate()
    scheduled = engine.observations[-4].values
    assert (engine.observations[-4].step, scheduled["plan"]) == (2, (("A", 8, 0),))
    assert engine.observations[-2].values["computed"].tolist() == [0]


def test_a_finished_request_saves_nothing() -> None:
    of = offload(
        request("A", prompt_len=9),
        request("B", prompt_len=9, arrive=3),
        events=(Abort(step=0, request="A"),),
        **NO_DRAFTS,
    )
    engine = Engine(of)
    engine.iterate()
    engine.iterate()
    assert (len(engine.frames), engine.scheduler.store.keys) == (0, ())
    assert plans(run_reference(of))[3] == (("B", 8, 0),)


# Hitting and loading


def test_a_prefix_is_hit_once_its_frame_is_processed() -> None:
    of = offload(
        request("A", prompt_len=9, max_tokens=9),
        request("B", prompt_len=9, arrive=1),
        request("C", prompt_len=9, arrive=2),
    )
    steps = observed(run_reference(of), Boundary.SCHEDULED)
    # The frame of step 0 is processed in iteration 1, after plan(1).
    assert steps[1]["plan"] == (("A", 1, 0), ("B", 8, 0))
    assert steps[2]["plan"] == (("A", 2, 1), ("B", 1, 0), ("C", 1, 0))
    # A: 5 attention blocks in step 0, a sixth in step 2; B: 5. C takes 5 new ones and shares none.
    assert steps[2]["block_table"]["C"] == (12, 13, 14, 15, 16)
    # State blocks in step 0: cdiv(8, 4) + 1 for A; in step 1: a fourth for A, 3 for B; in step 2:
    # cdiv(9 + 2, 4) + 1 is what A has, a fourth for B, and 3 for C behind a null column.
    assert steps[2]["state_table"]["A"] == (1, 2, 3, 4)
    assert steps[2]["state_table"]["B"] == (5, 6, 7, 8)
    assert steps[2]["state_table"]["C"] == (0, 9, 10, 11)


@pytest.mark.parametrize("numerics", JUDGED)
@pytest.mark.parametrize(
    ("drafter", "k"),
    [
        (DrafterKind.SCRIPTED, 2),
        (DrafterKind.MTP, 2),
        (DrafterKind.EXTRACT_HIDDEN_STATES, 1),
    ],
)
def test_what_is_loaded_is_what_was_computed(
    numerics: Numerics, drafter: DrafterKind, k: int
) -> None:
    of = offload(
        request("A", prompt_len=9, max_tokens=9),
        request("B", prompt=(*PROMPT, 5), arrive=2),
        model=msgspec.structs.replace(SMALL, numerics=numerics),
        drafter=drafter,
        draft_len_max=k,
    )
    run = run_reference(of)
    inputs, sampled = observed(run, Boundary.INPUTS), observed(run, Boundary.SAMPLED)
    assert observed(run, Boundary.PREPARED)[2]["rows"] == ("A", "B")
    loading = inputs[2]
    assert (loading["computed"].tolist(), loading["accepted"].tolist()) == ([9, 8], [1, 1])
    # A's chunk of 8 tokens left exactly this behind, in step 0.
    for name in ("kv.2", "draft_kv"):
        np.testing.assert_array_equal(loading[f"loaded_{name}"], sampled[0][name])
        assert loading[f"loaded_{name}"].dtype == sampled[0][name].dtype
    for name in ("state.0", "state.1"):
        np.testing.assert_array_equal(loading[name][1], sampled[0][name][0, 0])
        np.testing.assert_array_equal(
            loading[name][1], sampled[0][name.replace("state", "checkpoint")][0]
        )
    for name in ("conv.0", "conv.1"):
        np.testing.assert_array_equal(loading[name][1], sampled[0][name][0])
    # Nothing is loaded in any other step.
    for step, values in inputs.items():
        if step != 2:
            assert len(values["loaded_kv.2"]) == len(values["loaded_draft_kv"]) == 0


def test_loaded_entries_are_those_from_scratch() -> None:
    of = offload(
        request("A", prompt_len=9),
        request("B", prompt_len=9, arrive=3),
        model=msgspec.structs.replace(SMALL, layers=(LayerKind.ATTENTION, LayerKind.MAMBA2)),
    )
    loading = observed(run_reference(of), Boundary.INPUTS)[3]
    cache, layer = recompute(build_model(of.model), PROMPT[:8]).state
    assert isinstance(cache, Cache) and isinstance(layer, Recurrent)
    np.testing.assert_array_equal(loading["loaded_kv.0"], cache.kv)
    np.testing.assert_array_equal(loading["state.1"][1], layer.state)


def test_loaded_entries_stand_in_row_order() -> None:
    of = offload(
        request("A", prompt_len=9, max_tokens=20),
        # B hits 4 and computes 1 token, C hits 8 and computes 1.
        request("B", prompt_len=5, arrive=3),
        request("C", prompt_len=9, arrive=3),
        events=(Rotate(step=3, requests=("B", "C")),),
        prefill_chunk_max=4,
    )
    run = run_reference(of)
    assert plans(run)[3] == (("A", 2, 1), ("B", 1, 0), ("C", 1, 0))
    assert observed(run, Boundary.PREPARED)[3]["rows"] == ("A", "C", "B")
    assert run.unmet_events == ()
    loading, sampled = (observed(run, b) for b in (Boundary.INPUTS, Boundary.SAMPLED))
    for name in ("kv.2", "draft_kv"):
        # A kept 4 entries in each of steps 0 and 1.
        first, second = sampled[0][name], sampled[1][name]
        np.testing.assert_array_equal(
            loading[3][f"loaded_{name}"], np.concatenate([first, second, first])
        )


def test_without_a_drafter_only_the_layers_are_loaded() -> None:
    of = offload(request("A", prompt_len=9), **NO_DRAFTS)
    names = set(observed(run_reference(of), Boundary.INPUTS)[0])
    assert {name for name in names if name.startswith("loaded")} == {"loaded_kv.2"}


def test_a_resumed_request_hits_what_it_saved_itself() -> None:
    of = offload(
        request(prompt_len=9, max_tokens=6), events=(Preempt(step=2, request="A"),), **NO_DRAFTS
    )
    run = run_reference(of)
    steps = observed(run, Boundary.SCHEDULED)
    # Chunks 8 and 1. Frame 0 saved the boundary 8 in iteration 1; frame 1 is stale in iteration 2
    # and delivers a token, so the new incarnation has 10 of which it computes 2.
    assert [steps[step]["plan"] for step in (0, 1, 3)] == [
        (("A", 8, 0),),
        (("A", 1, 0),),
        (("A", 2, 0),),
    ]
    assert 2 not in steps
    inputs = observed(run, Boundary.INPUTS)[3]
    assert (inputs["computed"].tolist(), len(inputs["loaded_kv.2"])) == ([8], 8)
    # Column 0 is null. The 3 blocks of the first incarnation are at the end of the free list.
    assert steps[1]["state_table"]["A"] == (1, 2, 3)
    assert steps[3]["state_table"]["A"] == (0, 4, 5)
    # The hit is loaded once, not in the steps that follow.
    assert len(observed(run, Boundary.INPUTS)[4]["loaded_kv.2"]) == 0


def test_a_hit_that_finds_no_blocks_loads_when_there_are_some() -> None:
    # 13 tokens and 1 ahead take 7 of 9 attention blocks: B, which needs 5, waits for A's end.
    of = offload(
        request("A", prompt_len=9, max_tokens=4),
        request("B", prompt_len=9, arrive=2, max_tokens=2),
        depth=1,
        blocks=10,
    )
    run = run_reference(of)
    loads = {
        step: len(values["loaded_kv.2"])
        for step, values in observed(run, Boundary.INPUTS).items()
        if len(values["loaded_kv.2"])
    }
    (step,) = loads
    assert loads == {step: 8}
    assert plans(run)[step] == (("B", 1, 0),)
    assert all(name == "A" for s in range(step) for name, _, _ in plans(run).get(s, ()))


def test_what_fails_to_load_is_computed_and_not_hit_again() -> None:
    requests = (
        request("A", prompt=PROMPT, max_tokens=2),
        request("B", prompt=(*PROMPT, 10), arrive=6, max_tokens=2),
    )
    carried: dict[str, Any] = {"prefill_chunk_max": 4, "transfers": TransferMode.NIC}
    loading = run_reference(offload(*requests, **carried))
    of = offload(*requests, **carried, failing_loads=(6,))
    failing = run_reference(of)
    assert plans(loading)[6] == (("B", 2, 0),)
    # The prefix of 8 tokens has failed and that of 4 is there, so the next plan computes 4 to 8.
    assert [plans(failing).get(step) for step in (6, 7, 8)] == [
        None,
        (("B", 4, 0),),
        (("B", 2, 0),),
    ]
    assert failing.delivered == loading.delivered
    assert finished(of).scheduler.store.keys == (PROMPT[:5], PROMPT)
