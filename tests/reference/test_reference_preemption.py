"""Who has to go when blocks are short, and when it comes back, on examples computed by hand."""

from __future__ import annotations

from racegate.history.observe import Boundary
from racegate.scenario.spec import Preempt
from racegate_reference.engine import run_reference
from reference_runs import NO_DRAFTS, observed, plans
from reference_scenarios import request, scenario


def test_the_last_running_request_makes_room() -> None:
    # Blocks 1 .. 4 of 2 positions: A and B take 2 each; in step 2 A needs a third one.
    run = run_reference(
        scenario(
            request("A", prompt_len=3, max_tokens=4),
            request("B", prompt_len=3, max_tokens=4),
            depth=2,
            block_size=2,
            blocks=5,
            **NO_DRAFTS,
        )
    )
    steps = observed(run, Boundary.SCHEDULED)
    assert steps[1]["block_table"] == {"A": (1, 2), "B": (3, 4)}
    assert steps[2]["plan"] == (("A", 1, 0),)
    assert steps[2]["preempted"] == ("B",)
    # B's blocks came back in the order 4, 3.
    assert steps[2]["block_table"] == {"A": (1, 2, 4)}
    processed = observed(run, Boundary.PROCESSED)
    # The frame of step 1 was in flight: it still delivers B's second token, and no more than that.
    assert len(processed[1]["delivered"]["B"]) == 2
    assert (processed[1]["computed"]["B"], processed[1]["placeholders"]["B"]) == (0, 0)
    # B needs cdiv(5, 2) blocks, so it waits until A is finished (frame 3, processed in step 4).
    assert plans(run)[5] == (("B", 5, 0),)
    assert run.steps < 20


def test_a_request_alone_in_want_of_blocks_preempts_itself() -> None:
    run = run_reference(
        scenario(
            request("A", prompt_len=3, max_tokens=4),
            request("B", prompt_len=3, max_tokens=4),
            depth=1,
            block_size=2,
            blocks=6,
            **NO_DRAFTS,
        )
    )
    steps = observed(run, Boundary.SCHEDULED)
    assert steps[2]["block_table"] == {"A": (1, 2, 5)}
    assert (steps[2]["plan"], steps[2]["preempted"]) == ((("A", 1, 0),), ("B",))
    # 2 blocks are free, B needs 3: it waits although the budget would do.
    assert steps[3]["plan"] == (("A", 1, 0),)
    assert steps[4]["plan"] == (("B", 5, 0),)
    assert steps[4]["block_table"] == {"B": (4, 3, 5)}


def test_a_preempted_request_waits_for_its_frames() -> None:
    run = run_reference(
        scenario(
            request("A", prompt_len=2, max_tokens=6, accepts=(2,)),
            request("B", prompt_len=2, max_tokens=9, accepts=(2,)),
            events=(Preempt(step=0, request="A"), Preempt(step=2, request="A")),
            depth=2,
            draft_len_max=1,
        )
    )
    steps = observed(run, Boundary.SCHEDULED)
    assert steps[2]["plan"] == (("B", 2, 1),)
    assert steps[2]["preempted"] == ("A",)
    processed = observed(run, Boundary.PROCESSED)
    assert len(processed[1]["delivered"]["A"]) == 3
    # Frame 1 came back in iteration 2: the new incarnation prefills prompt and 3 tokens.
    assert steps[3]["plan"] == (("B", 2, 1), ("A", 5, 0))
    # In step 0 A was yet to arrive.
    assert run.unmet_events == ("preempt A @0",)


def test_a_preempted_request_without_frames_comes_back_at_once() -> None:
    run = run_reference(
        scenario(
            *(request(name, prompt_len=2, max_tokens=6) for name in "ABC"),
            events=(Preempt(step=2, request="A"), Preempt(step=2, request="B")),
            depth=1,
            **NO_DRAFTS,
        )
    )
    steps = observed(run, Boundary.SCHEDULED)
    # Each goes to the head of the queue, so the last one preempted is the first to return.
    assert steps[2]["plan"] == (("C", 1, 0), ("B", 4, 0), ("A", 4, 0))
    assert steps[2]["preempted"] == ("A", "B")
    # Rows A B C: holes at 0 and 1 are taken by B and A, then C's region comes first.
    assert observed(run, Boundary.PREPARED)[2]["rows"] == ("C", "A", "B")


def test_a_preempted_request_is_ahead_of_those_waiting() -> None:
    run = run_reference(
        scenario(
            *(request(name, prompt_len=2, max_tokens=2) for name in "AB"),
            events=(Preempt(step=1, request="A"),),
            depth=1,
            rows_max=1,
            **NO_DRAFTS,
        )
    )
    # A's second token comes from recomputing its prompt and its first one.
    assert plans(run) == {
        0: (("A", 2, 0),),
        1: (("A", 3, 0),),
        2: (("B", 2, 0),),
        3: (("B", 1, 0),),
    }


def test_nobody_is_admitted_when_somebody_had_to_go() -> None:
    # Blocks 1 .. 5 of 2 positions. In step 2 A takes the last one and B preempts itself. C would
    # fit into B's blocks, and B is passed over while its frame of step 1 is in flight.
    run = run_reference(
        scenario(
            request("A", prompt_len=3, max_tokens=5),
            request("B", prompt_len=3, max_tokens=5),
            request("C", prompt_len=1, max_tokens=1, arrive=2),
            depth=2,
            block_size=2,
            blocks=6,
            **NO_DRAFTS,
        )
    )
    assert observed(run, Boundary.SCHEDULED)[2]["preempted"] == ("B",)
    assert plans(run)[2] == (("A", 1, 0),)
    # Then B is the head of the queue and needs 3 blocks, of which 2 are free: C waits behind it.
    assert plans(run)[3] == (("A", 1, 0),)
    assert plans(run)[4] == (("A", 1, 0),)
    assert plans(run)[6] == (("B", 5, 0), ("C", 1, 0))
