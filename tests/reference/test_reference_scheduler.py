"""The scheduling policy on examples computed by hand, and its counters' identities as laws."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings

from racegate.history.observe import Boundary
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import Abort, Budget, DraftLimit, Gap, OwnScenario, Rotate
from racegate_reference.blocks import NULL_BLOCK, Pool
from racegate_reference.engine import Engine, run_reference
from reference_runs import NO_DRAFTS, iterations, observed, plans
from reference_scenarios import request, scenario, scenarios


def test_counters_of_the_steady_state() -> None:
    # Prompt of 5, k = 3, depth 2; every draft round accepts 2 of 4.
    engine = Engine(scenario(request(prompt_len=5, max_tokens=20, accepts=(2,))))
    tracked = engine.scheduler.requests["A"]
    counters = []
    for _ in range(5):
        engine.iterate()
        counters.append((tracked.computed, tracked.placeholders, len(tracked.delivered)))
    assert counters == [
        (5, 1, 0),  # prompt scheduled
        (9, 4, 1),  # 4 scheduled, 1 token of step 0 delivered
        (11, 4, 3),  # 4 scheduled, 2 of the 4 of step 1 rejected
        (13, 4, 5),
        (15, 4, 7),
    ]


def test_a_request_whose_counts_are_unknown_waits_for_them() -> None:
    busy = request("B", prompt_len=1, max_tokens=20)
    run = run_reference(
        scenario(
            request("A", prompt_len=2, max_tokens=20),
            busy,
            events=(Gap(step=2, request="A"),),
            depth=3,
            draft_len_max=1,
        )
    )
    plan = plans(run)
    assert plan[0] == (("A", 2, 0), ("B", 1, 0))
    assert plan[1] == (("A", 2, 1), ("B", 2, 1))
    assert plan[2] == (("B", 2, 1),)
    # Steps 1's frame is processed at the end of iteration 3; then A continues without drafts.
    assert plan[3] == (("B", 2, 1),)
    assert plan[4] == (("A", 1, 0), ("B", 2, 1))
    assert plan[5] == (("A", 2, 1), ("B", 2, 1))


def test_budget_and_draft_limit_lower_the_drafts() -> None:
    run = run_reference(
        scenario(
            request("A", prompt_len=2, max_tokens=20),
            request("B", prompt_len=2, max_tokens=20),
            events=(
                DraftLimit(step=1, request="A", drafts=2),
                Budget(step=2, tokens=6),
                Budget(step=3, tokens=0),
                DraftLimit(step=4, request="B", drafts=0),
            ),
            depth=1,
            draft_len_max=3,
        )
    )
    plan = plans(run)
    assert plan[1] == (("A", 3, 2), ("B", 4, 3))
    assert plan[2] == (("A", 4, 3), ("B", 2, 1))
    assert 3 not in plan
    # Nothing was planned in step 3, so the drafts are gone: the limit finds none to lower.
    assert plan[4] == (("A", 1, 0), ("B", 1, 0))
    assert run.unmet_events == ("draft_limit B @4",)


def test_the_chunk_limit_is_for_prefill_only() -> None:
    run = run_reference(
        scenario(request(prompt_len=3, max_tokens=9), prefill_chunk_max=2, draft_len_max=3)
    )
    assert [plan[0][1:] for plan in plans(run).values()][:3] == [(2, 0), (1, 0), (4, 3)]


def test_the_end_is_certain_before_it_is_delivered() -> None:
    # max_tokens = 2: while the second token is promised, nothing more is scheduled.
    run = run_reference(scenario(request(prompt_len=2, max_tokens=2), depth=2, **NO_DRAFTS))
    assert plans(run) == {0: (("A", 2, 0),), 1: (("A", 1, 0),)}
    assert (run.steps, run.finished) == (3, {"A": "max_tokens"})
    # A stop is not foreseen: a step more is scheduled, and its frame is skipped.
    stopping = request(prompt_len=2, max_tokens=9, stop_after=2)
    run = run_reference(scenario(stopping, depth=2, **NO_DRAFTS))
    assert sorted(plans(run)) == [0, 1, 2]
    assert run.finished == {"A": "stop"}
    assert len(run.delivered["A"]) == 2


def test_chunks_end_at_boundaries() -> None:
    run = run_reference(
        scenario(
            request(prompt_len=10, max_tokens=1),
            depth=1,
            prefill_chunk_max=5,
            cache_mode=CacheMode.ALIGN,
            state_interval=4,
            **NO_DRAFTS,
        )
    )
    assert plans(run) == {0: (("A", 4, 0),), 1: (("A", 4, 0),), 2: (("A", 2, 0),)}
    inputs = observed(run, Boundary.INPUTS)
    assert [inputs[step]["computed"].tolist() for step in range(3)] == [[0], [4], [8]]
    prepared = observed(run, Boundary.PREPARED)
    # The prompt is 1 .. 10: the token behind each chunk is known.
    assert [prepared[step]["backup_token"].tolist() for step in range(3)] == [[5], [9], [-1]]


def test_chunks_do_not_end_at_boundaries_without_align() -> None:
    run = run_reference(
        scenario(request(prompt_len=10, max_tokens=1), depth=2, prefill_chunk_max=4, **NO_DRAFTS)
    )
    assert [plan[0][1] for plan in plans(run).values()] == [4, 4, 2]


def test_no_more_than_rows_max_run() -> None:
    run = run_reference(
        scenario(
            *(request(name, prompt_len=1, max_tokens=2) for name in "ABC"),
            depth=1,
            rows_max=2,
            **NO_DRAFTS,
        )
    )
    names = {step: tuple(name for name, _, _ in plan) for step, plan in plans(run).items()}
    assert names == {0: ("A", "B"), 1: ("A", "B"), 2: ("C",), 3: ("C",)}


def test_a_gap_keeps_requests_from_running_but_not_their_place() -> None:
    run = run_reference(
        scenario(
            *(request(name, prompt_len=1, max_tokens=3) for name in "ABC"),
            events=(Gap(step=0, request="A", steps=2), Gap(step=1, request="B", steps=1)),
            depth=1,
            **NO_DRAFTS,
        )
    )
    names = {step: tuple(name for name, _, _ in plan) for step, plan in plans(run).items()}
    assert names == {
        0: ("B", "C"),
        1: ("C",),
        2: ("B", "C", "A"),
        3: ("B", "A"),
        4: ("A",),
    }


def test_rotate_moves_rows_for_a_step_and_for_good() -> None:
    run = run_reference(
        scenario(
            *(request(name, prompt_len=2, max_tokens=4) for name in "ABC"),
            events=(Rotate(step=2, requests=("A", "B", "C")),),
            depth=1,
            **NO_DRAFTS,
        )
    )
    rows = {step: values["rows"] for step, values in observed(run, Boundary.PREPARED).items()}
    assert rows == {
        0: ("A", "B", "C"),
        1: ("A", "B", "C"),
        2: ("C", "A", "B"),
        3: ("C", "A", "B"),
    }
    # The order of the plan does not change.
    assert [name for name, _, _ in plans(run)[2]] == ["A", "B", "C"]


def test_a_prefix_is_hit_by_a_later_request() -> None:
    run = run_reference(
        scenario(
            request("A", prompt_len=9, max_tokens=9),
            request("B", prompt_len=9, max_tokens=2, arrive=3),
            depth=2,
            draft_len_max=1,
            block_size=2,
            state_interval=4,
            cache_mode=CacheMode.ALIGN,
        )
    )
    steps = observed(run, Boundary.SCHEDULED)
    # Chunks 8 and 1; frame 0 is processed in iteration 1 and publishes the boundary 8.
    assert [steps[step]["plan"][0] for step in (0, 1)] == [("A", 8, 0), ("A", 1, 0)]
    assert steps[3]["plan"][1] == ("B", 1, 0)
    assert steps[3]["block_table"]["B"][:4] == steps[3]["block_table"]["A"][:4]
    # Column 0 is null, column 1 is A's, 2 columns are new: cdiv(9, 4) + 1 in all.
    table = steps[3]["state_table"]["B"]
    assert (len(table), table[0], table[1]) == (4, 0, steps[3]["state_table"]["A"][1])
    # A hit needs no prefill: region short extend, behind A's decode row.
    inputs = observed(run, Boundary.INPUTS)[3]
    assert inputs["computed"].tolist()[1] == 8


def test_aborts() -> None:
    run = run_reference(
        scenario(
            request("A", prompt_len=2, max_tokens=9),
            request("B", prompt_len=2, max_tokens=3),
            request("C", prompt_len=2, max_tokens=3, arrive=5),
            events=(
                Abort(step=2, request="A"),
                Abort(step=3, request="A"),
                Abort(step=3, request="C"),
                Rotate(step=4, requests=("A", "B")),
                Budget(step=90, tokens=3),
            ),
            depth=2,
            **NO_DRAFTS,
        )
    )
    # Frames 1 and 2 are in flight at the abort: only frame 0 was delivered.
    assert len(run.delivered["A"]) == 1
    assert run.finished == {"A": "abort", "B": "max_tokens", "C": "max_tokens"}
    assert "A" not in observed(run, Boundary.PROCESSED)[2]["delivered"]
    assert run.unmet_events == ("abort A @3", "abort C @3", "rotate A,B @4", "budget @90")


def test_steps_max_leaves_requests_unfinished() -> None:
    run = run_reference(scenario(request(max_tokens=9), steps_max=2, **NO_DRAFTS))
    assert (run.steps, run.finished) == (2, {"A": "unfinished"})
    assert len(run.delivered["A"]) == 1


@given(scenarios())
@settings(max_examples=60)
def test_counters_agree_with_the_frames_in_flight(of: OwnScenario) -> None:
    final: dict[str, int] = {}
    for engine in iterations(of):
        assert len(engine.frames) < of.engine.depth or engine.done
        promised, stale = Counter[str](), Counter[str]()
        for frame in engine.frames:
            for result in frame.results:
                entry = result.entry
                final[entry.request] = result.end
                if entry.incarnation != engine.scheduler.requests[entry.request].incarnation:
                    stale[entry.request] += 1
                elif not entry.chunk:
                    promised[entry.request] += 1 + entry.drafts
        for tracked in engine.scheduler.waiting:
            assert (tracked.computed, tracked.placeholders) == (0, 0)
            assert tracked.stale == stale[tracked.name]
        for tracked in engine.scheduler.running:
            # I-01, I-02, I-03 of docs/mechanism.md.
            assert tracked.stale == 0
            assert tracked.placeholders == promised[tracked.name]
            assert tracked.computed <= of.engine.model_len_max - 1
            if tracked.decoding:
                assert tracked.computed + 1 == tracked.length + tracked.placeholders
            # I-07: with nothing in flight the counts are exact. (A frame of depth 1 is processed
            # before it is seen here.)
            if tracked.in_flight == 0 and of.engine.depth > 1:
                assert tracked.placeholders == 0
                assert tracked.computed == final[tracked.name]


@given(scenarios())
@settings(max_examples=60)
def test_blocks_belong_to_one_request_or_to_a_common_prefix(of: OwnScenario) -> None:
    for engine in iterations(of):
        blocks, requests = engine.scheduler.blocks, engine.scheduler.requests.values()
        attention = {t.name: t.tables.attention for t in requests}
        state = {t.name: t.tables.state for t in requests}
        check_pool(engine, blocks.attention, attention, of.engine.blocks, of.engine.block_size)
        check_pool(engine, blocks.state, state, of.engine.state_blocks, of.engine.state_interval)
    assert len(blocks.attention.free) == of.engine.blocks - 1
    assert len(blocks.state.free) == of.engine.state_blocks - 1


def check_pool(
    engine: Engine, pool: Pool, tables: dict[str, list[int]], count: int, size: int
) -> None:
    """Every block is free or held; held twice only for the same tokens, look-ahead included."""
    holders: dict[int, list[tuple[str, int]]] = {}
    for name, table in tables.items():
        for column, block in enumerate(table):
            if block != NULL_BLOCK:
                holders.setdefault(block, []).append((name, column))
    assert sorted([*pool.free, *holders]) == list(range(1, count))
    for held in holders.values():
        prefixes = {
            engine.scheduler.requests[name].tokens[: (column + 1) * size + 1]
            for name, column in held
        }
        assert len(prefixes) == 1
        assert len(held) == 1 or len(prefixes.pop()) == (held[0][1] + 1) * size + 1
        assert len({name for name, _ in held}) == len(held)
