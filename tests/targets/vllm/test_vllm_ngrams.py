"""Drafts that are looked up, as vLLM's two runners do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from racegate.scenario.spec import Request, Scenario
from racegate.targets.vllm.inside.scripted.ngrams import NgramScript, follow
from racegate.targets.vllm.inside.scripted.params import penalties_of
from racegate.targets.vllm.inside.truth.compare import Truth
from racegate.targets.vllm.inside.truth.course import NO_DRAFT
from racegate.targets.vllm.inside.truth.groups import GroupTable
from racegate.targets.vllm.wire import NGRAM_MAX, NGRAM_MIN, ModelRunner

MOST = 3


def script(runner: ModelRunner) -> NgramScript:
    # What is said behind eight tokens begins with 59, 2, 9, 16: the prompt has it, but for a 17.
    request = Request(name="A", arrive=0, prompt=(52, 59, 2, 9, 17, 1, 1, 52), max_tokens=9)
    scenario = Scenario(name="s", title="t", requests=(request,))
    return NgramScript(scenario, draft_len=MOST, runner=runner, lies=False, device="cpu")


@given(st.lists(st.integers(0, 2), max_size=12))
def test_the_longest_run_of_last_tokens_is_found(tokens: list[int]) -> None:
    """By brute force: every earlier place, and every length of the run."""
    runs = [
        (count, start)
        for count in range(NGRAM_MIN, min(NGRAM_MAX, len(tokens) - 1) + 1)
        for start in range(len(tokens) - count)
        if tokens[start : start + count] == tokens[-count:]
    ]
    longest = max((count for count, _ in runs), default=0)
    starts = [start for count, start in runs if count == longest]
    for is_first in (True, False):
        start = (min if is_first else max)(starts, default=len(tokens))
        followed = tokens[start + longest : start + longest + MOST]
        assert follow(tokens, MOST, is_first=is_first) == followed


def test_each_runner_fills_up_in_its_own_way() -> None:
    first, second = script(ModelRunner.V1), script(ModelRunner.V2)
    assert first.looked_up(0, 9) == second.looked_up(0, 9) == (2, 9, 17)
    assert first.looked_up(0, 8) == (NO_DRAFT,) * MOST  # nothing came before 1, 52
    assert second.looked_up(0, 8) == (52,) * MOST


def test_drafts_that_were_not_found_are_cut_though_they_are_chosen() -> None:
    """Of three drafts that the scheduler chooses one was found, and it is wrong."""
    says = script(ModelRunner.V1)
    truth = Truth(says, (GroupTable(size=512, is_state=False, moves=False),), penalties_of)
    said = {"tokens": 8, "drafts": 0, "computed": 0, "known": 8, "blocks": [[1]]}
    later = {"tokens": 4, "drafts": 3, "computed": 8, "known": None, "blocks": [[1]]}
    last = {"tokens": 4, "drafts": 3, "computed": 12, "known": None, "blocks": [[1]]}
    tokens = [says.token_at(0, place) for place in range(10)]
    truth.read([
        (1, "scheduled", {"requests": {"A": said}, "asked": None}),
        (1, "attention", {"rows": ["A"], "query_start": [0, 8], "seq_lens": [8], "slots": []}),
        (1, "drafts", {"rows": ["A"], "tokens": [[3, NO_DRAFT, NO_DRAFT]]}),
        (2, "scheduled", {"requests": {"A": later}, "asked": None}),
        (2, "attention", {"rows": ["A"], "query_start": [0, 2], "seq_lens": [10], "slots": []}),
        (2, "inputs of the model", {"tokens": [tokens[8], 3], "positions": [8, 9]}),
        (2, "accepted", {"rows": ["A"], "counts": [1], "next": [tokens[9]]}),
        (3, "scheduled", {"requests": {"A": last}, "asked": None}),
    ])  # fmt: skip
    wrong = [one.what for one in truth.untrue]
    assert [what for what in wrong if not what.startswith("drafts.tokens")] == []
    assert wrong  # of the draft, which is not what followed
    assert truth.compared["accepted.counts"] == 1 and truth.compared["scheduled.computed"] == 3
