"""What is true of a step, and how observations are compared with it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.inside.watch import Seen
from racegate.targets.vllm.inside.scripted.model import Script
from racegate.targets.vllm.inside.scripted.params import penalties_of
from racegate.targets.vllm.inside.truth.compare import UNTRUE_MAX, Truth
from racegate.targets.vllm.inside.truth.course import Course, RequestStep
from racegate.targets.vllm.inside.truth.groups import GroupTable
from racegate.targets.vllm.inside.truth.values import judged_by
from racegate.targets.vllm.wire import DraftMode, ModelRunner, ProposerKind

DRAFTS = 3
GROUPS = (
    GroupTable(size=512, is_state=True, moves=False),
    GroupTable(size=8, is_state=False, moves=False),
)
BLOCKS = {"A": [[1, 2, 3, 4], [5, 6, 7, 8]], "B": [[9, 10, 11, 12], [13, 14, 15, 16]]}


def script(accepts: tuple[int, ...] = (2, 4), *, modulus: int = 0) -> Script:
    requests = (
        Request(name="A", arrive=0, prompt=(5, 6, 7, 8), max_tokens=20, accepts=accepts),
        Request(
            name="B", arrive=0, prompt=(9, 10, 11), max_tokens=20, accepts=(1,),
            temperature=0.05, seed=7, grammar_modulus=modulus,
        ),
    )  # fmt: skip
    return Script(Scenario(name="s", title="t", requests=requests), draft_len=DRAFTS)


def chosen(name: str, tokens: int, drafts: int, computed: int, known: int | None) -> dict[str, Any]:
    said = {"tokens": tokens, "drafts": drafts, "computed": computed, "known": known}
    return {name: said | {"blocks": BLOCKS[name]}}


def scheduled(step: int, **requests: tuple[int, int, int, int | None]) -> Seen:
    said = {name: chosen(name, *of)[name] for name, of in requests.items()}
    return (step, "scheduled", {"requests": said, "asked": DRAFTS})


def two_steps() -> list[Seen]:
    """A prefill of A, then a step with three drafts, of which one is accepted; all true."""
    says = script()
    prompt, plain = says.prompt(0), says.plain(0)
    first = [8 * 5 + at for at in range(4)]
    drafts = [says.draft_at(0, 5 + number) for number in range(3)]
    return [
        scheduled(1, A=(4, 0, 0, 4)),
        (1, "metadata", {
            "rows": ["A"], "drafted": [False], "query_start": [0, 4], "seq_lens": [4],
            "accepted": [1], "non_spec_state_indices_tensor": [1], "group": 0,
        }),
        (1, "attention", {
            "rows": ["A"], "query_start": [0, 4], "seq_lens": [4], "slots": first, "group": 1,
            "seq_lens_cpu_upper_bound": [4], "table": [[5, 0, 0, 0]],
        }),
        (1, "inputs of the model", {"tokens": prompt, "positions": [0, 1, 2, 3]}),
        (1, "accepted", {"rows": ["A"], "counts": [1], "next": [plain[0]]}),
        (1, "inputs of the drafter", {
            "tokens": [*prompt[1:], plain[0]], "positions": [0, 1, 2, 3],
            "hidden": [[place, token] for place, token in enumerate(prompt)],
        }),
        (1, "inputs of the drafter", {"tokens": [drafts[0]], "positions": [4]}),
        (1, "drafts", {"rows": ["A"], "tokens": [drafts]}),
        scheduled(2, A=(4, 3, 4, None)),
        (2, "previous rows", {"rows": ["A"], "at": [0]}),
        (2, "metadata", {
            "rows": ["A"], "drafted": [True], "query_start": [0, 4], "seq_lens": [8],
            "accepted": [1], "spec_state_indices_tensor": [[1, 2, 3, 4]], "group": 0,
        }),
        (2, "attention", {
            "rows": ["A"], "query_start": [0, 4], "seq_lens": [8], "group": 1,
            "slots": [44, 45, 46, 47], "table": [[5, 0, 0, 0]],
        }),
        (2, "inputs of the model", {
            "tokens": [plain[0], *drafts], "positions": [4, 5, 6, 7],
        }),
        (2, "accepted", {"rows": ["A"], "counts": [2], "next": [plain[2]], "rejected": [2]}),
        (2, "sampled", {"step": 1, "tokens": {"A": [plain[0]]}}),
        (3, "sampled", {"step": 2, "tokens": {"A": list(plain[1:3])}}),
    ]  # fmt: skip


def untrue(seen: list[Seen], says: Script | None = None) -> list[str]:
    truth = Truth(says or script(), GROUPS, penalties_of)
    truth.read(seen)
    return [f"step {w.step}: {w.what}: {w.used} used, {w.true} true" for w in truth.untrue]


def test_what_is_true_is_silent() -> None:
    assert untrue(two_steps()) == []


def of_mamba2(prefills: list[int], decodes: list[list[int]]) -> list[Seen]:
    """The two steps of a model whose metadata has decodes first. The slots of states in each."""
    seen = two_steps()
    for number, field, slots, ends in ((1, "state_indices_tensor_p", prefills, 0),
                                       (10, "state_indices_tensor_d", decodes, 1)):  # fmt: skip
        step, name, values = seen[number]
        kept = {key: value for key, value in values.items() if "state_indices" not in key}
        seen[number] = (step, name, {**kept, field: slots, "decodes": ends})
    return seen


def test_slots_of_states_in_metadata_of_mamba2_have_a_truth() -> None:
    assert untrue(of_mamba2([1], [[1, 2, 3, 4]])) == []
    assert untrue(of_mamba2([2], [[2, 3, 4, 5]])) == [
        "step 1: metadata.state_indices_tensor_p of request A: [2] used, [1] true",
        "step 2: metadata.state_indices_tensor_d of request A: [2, 3, 4, 5] used, "
        "[1, 2, 3, 4] true",
    ]


# Observations of `two_steps` by number, a field, a wrong value of it, and what is said.
MISTAKES = [
    (1, "seq_lens", [5], "step 1: metadata.seq_lens of request A in row 0: 5 used, 4 true"),
    (1, "non_spec_state_indices_tensor", [2],
     "step 1: metadata.non_spec_state_indices_tensor of request A: [2] used, [1] true"),
    (2, "slots", [40, 41, 42, 44],
     "step 1: attention.slots of request A in row 0, token 3: 44 used, 43 true"),
    (2, "table", [[6, 0, 0, 0]], "step 1: attention.table of request A: [6] used, [5] true"),
    (2, "seq_lens_cpu_upper_bound", [7],
     "step 1: attention.seq_lens_cpu_upper_bound of request A in row 0: 7 used, 4 true"),
    (3, "positions", [0, 1, 2, 4],
     "step 1: inputs of the model.positions of request A in row 0, token 3: 4 used, 3 true"),
    (4, "next", [0], "step 1: accepted.next of request A in row 0: 0 used, 31 true"),
    (6, "tokens", [0],
     "step 1: inputs of the drafter.tokens of request A in row 0: 0 used, 38 true"),
    (5, "hidden", [[0, 5], [1, 6], [1, 6], [3, 8]],
     "step 1: inputs of the drafter.hidden of request A in row 0, token 2: [1, 6] used, "
     "[2, 7] true"),
    (7, "tokens", [[38, 0, 52]],
     "step 1: drafts.tokens 2 of request A in row 0: 0 used, 52 true"),
    (9, "at", [-1], "step 2: previous rows.at of request A in row 0: -1 used, 0 true"),
    (10, "drafted", [False],
     "step 2: metadata.drafted of request A in row 0: 0 used, 1 true"),
    (10, "accepted", [4], "step 2: accepted count of request A in row 0: 4 used, 1 true"),
    (10, "spec_state_indices_tensor", [[2, 3, 4]],
     "step 2: metadata.spec_state_indices_tensor of request A: [2, 3, 4] used, [1, 2, 3] true"),
    (13, "rejected", [1], "step 2: accepted.rejected of request A in row 0: 1 used, 2 true"),
    (15, "tokens", {"A": [38, 45, 52]},
     "step 3: sampled.tokens of request A: [38, 45, 52] used, [38, 45] true"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "field", "value", "said"), MISTAKES)
def test_a_wrong_value_is_told_with_its_step_request_row_and_truth(
    number: int, field: str, value: object, said: str
) -> None:
    seen = two_steps()
    step, name, values = seen[number]
    assert field in values
    seen[number] = (step, name, {**values, field: value})
    assert untrue(seen)[:1] == [said]


@pytest.mark.parametrize("field", ["slots", "table", "query_start", "seq_lens", "rows"])
def test_lists_that_are_too_short_are_wrong_and_end_nothing(field: str) -> None:
    seen = two_steps()
    step, name, values = seen[2]
    seen[2] = (step, name, {**values, field: []})
    assert untrue(seen)


def test_a_request_in_the_batch_that_was_not_scheduled_is_told() -> None:
    seen = two_steps()
    step, name, values = seen[1]
    seen[1] = (step, name, {**values, "rows": ["B"]})
    assert untrue(seen)[0] == "step 1: rows of the batch: ['B'] used, ['A'] true"


def test_a_block_of_two_requests_is_told_unless_they_have_its_tokens_in_common() -> None:
    both = scheduled(1, A=(4, 0, 0, 4), B=(3, 0, 0, 3))
    requests: Any = both[2]["requests"]
    assert untrue([both]) == []
    requests["B"]["blocks"] = [[9, 10, 11, 12], [5]]
    assert untrue([both]) == [
        "step 1: scheduled.blocks of request B and request A: 5 used, -1 true"
    ]


def test_rows_are_sampled_with_what_their_requests_ask_for() -> None:
    both = scheduled(1, A=(4, 0, 0, 4), B=(3, 0, 0, 3))
    true: dict[str, object] = {
        "rows": ["B", "A"], "temperature": [0.05000000074505806, 0.0],
        "presence_penalties": [0.6, 0.0], "frequency_penalties": [0.4, 0.0],
        "repetition_penalties": [1.399999976158142, 1.0], "seeds": {"B": 7}, "outputs": [[], []],
    }  # fmt: skip
    assert untrue([both, (1, "sampling", true)]) == []
    for name in ("temperature", "presence_penalties", "repetition_penalties"):
        swapped = list(reversed(true[name]))  # type: ignore[call-overload]
        (first, _) = untrue([both, (1, "sampling", {**true, name: swapped})])
        assert first.startswith(f"step 1: sampling.{name} of request B in row 0: ")
    assert untrue([both, (1, "sampling", {**true, "seeds": {"B": 8}})])
    assert untrue([both, (1, "sampling", {**true, "outputs": [[3], []]})])
    chunk: dict[str, object] = {"rows": ["A"], "temperature": [0.0], "sums": [1.0]}
    assert untrue([both, (1, "sampling", chunk)]) == [], "runner V2 samples large batches in chunks"
    assert untrue([both, (1, "sampling", {**chunk, "temperature": [0.05]})])


def test_requests_that_stay_where_they_are_are_found_by_their_places() -> None:
    """A takes its last token's place, B, a chunk, the prompt's next."""
    both = scheduled(1, A=(4, 0, 0, 4), B=(2, 0, 0, 3))
    says = script()
    first, third = says.token_at(0, 4), says.token_at(1, 2)
    true: dict[str, object] = {
        "rows": ["B", "A"], "index": [3, 1], "counts": [0, 1], "rejected": [0, 0],
        "last": [[9], [first], [9], [9]], "prompt": [[9, 9, 9, third]],
    }  # fmt: skip
    assert untrue([both, (1, "accepted", true)]) == []
    (said,) = untrue([both, (1, "accepted", {**true, "index": [3, 0]})])
    assert said == f"step 1: accepted.next of request A in row 1: 9 used, {first} true"


def test_a_row_with_drafts_has_as_many_logits_as_tokens() -> None:
    first = scheduled(1, B=(3, 0, 0, 3))
    then = scheduled(2, A=(4, 0, 0, 4), B=(4, 3, 3, None))
    true: dict[str, object] = {
        "rows": ["B", "A"], "temperature": [0.05] * 4 + [0.0], "seeds": [7, 7, 7, 7, 99],
        "sums": [0.0] * 5,
    }  # fmt: skip
    assert untrue([first, then, (2, "sampling", true)]) == []
    wrong = {**true, "seeds": [7, 7, 7, 99, 99]}
    assert untrue([first, then, (2, "sampling", wrong)]) == [
        "step 2: sampling.seeds of request B in row 3: 99 used, 7 true"
    ]


def test_a_grammar_forbids_what_follows_from_the_token_before() -> None:
    says = script(modulus=2)
    first = (1, "scheduled", scheduled(1, B=(3, 0, 0, 3))[2])
    free = (1, "masks", {"rows": ["B"], "forbidden": [[0, 0]], "size": 8})
    then = (2, "scheduled", scheduled(2, B=(4, 3, 3, None))[2])
    before = says.token_at(1, 3)
    assert before is not None
    tokens = range(before % 2, 8, 2)
    masked = {"rows": ["B"], "forbidden": [[4, sum(tokens)], [0, 0], [0, 0], [0, 0]], "size": 8}
    assert untrue([first, free, then, (2, "masks", masked)], says) == []
    open_ = {**masked, "forbidden": [[0, 0]] * 4}
    assert untrue([first, free, then, (2, "masks", open_)], says)


def test_where_the_drafter_was_not_run_zeros_stand_for_drafts() -> None:
    seen = [one for one in two_steps() if one[0] == 1]
    again = scheduled(3, A=(4, 3, 8, None))
    inputs = {"tokens": [script().token_at(0, 5), 0, 0, 0], "positions": [5, 6, 7, 8]}
    step = scheduled(2, A=(1, 0, 4, None))
    requests: Any = again[2]["requests"]
    requests["A"]["computed"] = 5
    batch = (3, "metadata", {"rows": ["A"], "drafted": [True], "query_start": [0, 4],
                             "seq_lens": [9], "accepted": [1], "group": 0})  # fmt: skip
    then = (3, "accepted", {"rows": ["A"], "counts": [1], "rejected": [3]})
    model = (3, "inputs of the model", inputs)
    assert untrue([*seen, step, again, batch, model, then]) == []


def test_a_row_that_begins_with_one_token_is_padded_with_zeros_and_not_with_drafts() -> None:
    says = script()
    batch = (1, "metadata", {"rows": ["A"], "drafted": [True], "query_start": [0, 4],
                             "seq_lens": [7], "group": 0})  # fmt: skip
    inputs = {"tokens": [says.prompt(0)[3], 0, 0, 0], "positions": [3, 4, 5, 6]}
    then = (1, "accepted", {"rows": ["A"], "counts": [1], "rejected": [3]})
    seen = [scheduled(1, A=(4, 3, 3, 4)), batch, (1, "inputs of the model", inputs), then]
    assert untrue(seen) == []
    drafted = {**inputs, "tokens": [says.prompt(0)[3], says.draft_at(0, 4), 0, 0]}
    assert untrue([*seen[:2], (1, "inputs of the model", drafted), then])


def test_what_pads_a_graph_is_written_nowhere() -> None:
    step = scheduled(1, A=(4, 0, 0, 4))

    def graph(*slots: int) -> list[str]:
        return untrue([step, (1, "padded graph", {"slots 0": [8, 9, 10, 11, *slots]})])

    assert graph() == graph(-1, -1) == []
    assert graph(-1, 12) == [
        "step 1: padded graph.slots behind token 4, slots 0: [-1, 12] used, [-1, -1] true"
    ]
    assert untrue([(1, "padded graph", {"slots 0": [7]})]) == [], "of a step that nobody scheduled"


def test_not_more_is_told_than_somebody_reads() -> None:
    seen = two_steps()
    step, name, _ = seen[3]
    seen[3] = (step, name, {"tokens": [], "positions": []})
    assert 0 < len(untrue(seen * 5)) <= UNTRUE_MAX


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, DRAFTS + 1), min_size=1, max_size=5).map(tuple),
    st.lists(st.integers(0, DRAFTS), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_a_course_gives_the_tokens_of_plain_decoding(
    accepts: tuple[int, ...], drafts: list[int], chunk: int
) -> None:
    """However prompts are cut and however many drafts there are."""
    says = script(accepts)
    course = Course(says, most=512)
    first = course.step(1, chosen("A", chunk, 0, 0, 4))["A"]
    rows: list[RequestStep] = [first]
    if chunk < 4:
        assert course.outputs(first) == []
        rows.append(course.step(2, chosen("A", 4 - chunk, 0, chunk, None))["A"])
    for step, count in enumerate(drafts, start=len(rows) + 1):
        rows.append(course.step(step, chosen("A", count + 1, count, 0, None))["A"])
    tokens = [token for row in rows for token in course.outputs(row)]
    assert tokens == [says.token_at(0, 4 + at) for at in range(len(tokens))]
    assert all(later.start == row.computed for row, later in pairwise(rows))
    assert all(0 <= row.rejected <= row.drafts for row in rows)


def test_drafts_that_are_drawn_are_verified_as_they_were_drawn() -> None:
    requests = (
        Request(
            name="A", arrive=0, prompt=(5, 6, 7, 8), max_tokens=20, accepts=(4,), temperature=0.05
        ),
    )
    says = Script(
        Scenario(name="s", title="t", requests=requests),
        draft_len=DRAFTS,
        draft_mode=DraftMode.PROBABILISTIC,
    )
    right = [says.token_at(0, place) for place in range(5, 8)]
    wrong = [next(one for one in says.drawn_at(0, 6) if one != right[1])]
    for drawn, accepted in ((right, 4), (right[:1] + wrong + right[2:], 2)):
        truth = Truth(says, GROUPS, penalties_of)
        step = {"rows": ["A"], "next": [right[-1]], "counts": [accepted]}
        truth.read([
            scheduled(1, A=(4, 0, 0, 4)),
            (1, "attention", {"rows": ["A"], "query_start": [0, 4], "seq_lens": [4], "slots": []}),
            (1, "drafts", {"rows": ["A"], "tokens": [drawn]}),
            scheduled(2, A=(4, 3, 4, None)),
            (2, "accepted", step),
        ])  # fmt: skip
        assert [one.what for one in truth.untrue if "counts" in one.what] == []
        assert truth.compared["accepted.counts"] == 1
        assert not [one for one in truth.untrue if one.what.startswith("drafts")]


@pytest.mark.parametrize("accepted", [4, 1])
def test_drafts_of_who_was_passed_over_are_those_of_the_runner(accepted: int) -> None:
    says = script((4,))
    says.run_on(ModelRunner.V2 if accepted == 4 else ModelRunner.V1)
    course = Course(says, most=512)
    course.step(1, chosen("A", 4, 0, 0, 4))
    course.step(2, {})
    row = course.step(3, chosen("A", 4, 3, 4, None))["A"]
    drafts = [says.draft_at(0, place) if accepted == 4 else 0 for place in range(5, 8)]
    assert row.accepted == accepted and course.inputs(row)[1:] == drafts


def test_passes_of_a_drafter_that_is_given_tokens_alone_have_no_truth() -> None:
    names = ["attention", "inputs of the model", "attention", "inputs of the drafter", "drafts"]
    seen: list[Seen] = [(1, name, {}) for name in names] + [(2, "attention", {})]
    assert list(judged_by(seen, ProposerKind.MTP)) == seen
    left = [(step, name) for step, name, _ in judged_by(seen, ProposerKind.MODEL)]
    assert left == [(1, names[0]), (1, names[1]), (2, names[0])]


def test_blocks_that_left_a_window_are_in_no_table() -> None:
    row = RequestStep(request="A", index=0, start=8, tokens=4, drafts=0, known=12, blocks=((0, 6),))
    full, window = (
        GroupTable(size=8, is_state=False, moves=False, is_window=w) for w in (False, True)
    )
    assert full.table(row, 0) == [0, 6] and window.table(row, 0) == []
    assert window.slot(row, 0, 11) == 6 * 8 + 3


def test_drafts_are_lost_on_the_first_runner_behind_a_pass_in_which_nothing_is_run() -> None:
    says = script(accepts=(4,))
    says.run_on(ModelRunner.V1)
    course = Course(says, most=64)
    course.step(1, chosen("A", 4, 0, 0, 4))
    course.pass_over()
    (row,) = course.step(2, chosen("A", 4, 3, 4, None)).values()
    assert course.inputs(row)[1:] == [0, 0, 0] and row.accepted == 1 and row.last is None
    says.run_on(ModelRunner.V2)
    course = Course(says, most=64)
    course.step(1, chosen("A", 4, 0, 0, 4))
    course.pass_over()
    (row,) = course.step(2, chosen("A", 4, 3, 4, None)).values()
    assert course.inputs(row)[1:] == [says.draft_at(0, place) for place in (5, 6, 7)]


def test_what_a_row_has_said_is_true_only_where_penalties_count_it() -> None:
    def untrue(temperature: float) -> list[str]:
        warm = replace(script().scenario.requests[0], temperature=temperature, seed=7)
        says = Script(Scenario(name="s", title="t", requests=(warm,)), draft_len=DRAFTS)
        truth = Truth(says, GROUPS, penalties_of)
        said = {"rows": ["A"], "outputs": [[-1]]}
        truth.read([scheduled(1, A=(4, 0, 0, 4)), scheduled(2, A=(4, 3, 4, None)),
                    (2, "sampling", said)])  # fmt: skip
        return [one.what for one in truth.untrue]

    assert untrue(1.0) == []
    assert any("sampling.outputs" in one for one in untrue(0.05))
