"""Full fidelity, as far as it needs no vLLM: a model that computes, a drafter that knows it."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.interpose.outcome import Ending, Plan
from racegate.scenario.spec import Abort, Request, Scenario
from racegate.targets.common.client import Engine, plain_of
from racegate.targets.common.server import ForkServer
from racegate.targets.common.wire import Fidelity, RunMode, Task
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.scripted.computed import Computed, Known, give_weights
from racegate.targets.vllm.inside.scripted.model import VOCAB, WIDTH
from racegate.targets.vllm.wire import ModelRunner, StateMode

DRAFT_LEN = 3
SIZE = 8
ONE = Request(name="A", arrive=0, prompt=(1, 2, 3), max_tokens=9, accepts=(2, 4))
SCENARIO = Scenario(name="s", title="t", requests=(ONE,))


class Model(torch.nn.Module):
    """Hidden states that tell positions apart, and a head over the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(SIZE, VOCAB, bias=False)

    def forward(self, input_ids: Any) -> Any:
        return torch.arange(len(input_ids) * SIZE).reshape(-1, SIZE) / 10.0

    def compute_logits(self, hidden: Any) -> Any:
        return self.head(hidden)


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, WIDTH - 1), min_size=30, max_size=30),
    st.lists(st.integers(1, DRAFT_LEN + 1), min_size=1, max_size=4),
)
def test_drafts_of_a_model_that_computes_are_accepted_as_planned(
    tokens: list[int], accepts: list[int]
) -> None:
    """To the last round, which may accept more than the request still wants."""
    request = msgspec.structs.replace(ONE, accepts=tuple(accepts), max_tokens=18)
    scenario = msgspec.structs.replace(SCENARIO, requests=(request,))
    length = plain_of(scenario).requests[0].max_tokens
    script = Known(scenario, {"A": tuple(tokens[:length])}, draft_len=DRAFT_LEN, device="cpu")
    assert script.plain(0) == tuple(tokens[:18])
    position, counts = len(request.prompt), []
    while position - len(request.prompt) < 18 - 1:
        at = torch.arange(position - 1, position - 1 + DRAFT_LEN)
        drafts = script.draft(torch.zeros(DRAFT_LEN, dtype=torch.int64), at).tolist()
        true = tokens[position + 1 - len(request.prompt) :]
        count = next((i for i, draft in enumerate(drafts) if draft != true[i]), DRAFT_LEN) + 1
        counts.append(count)
        position += count
    assert counts == [accepts[i % len(accepts)] for i in range(len(counts))]


def test_a_prompt_may_begin_with_one_whose_decoding_is_known() -> None:
    longer = msgspec.structs.replace(ONE, name="Z", prompt=(*ONE.prompt, 7, 9))
    scenario = msgspec.structs.replace(SCENARIO, requests=(ONE, longer))
    script = Known(scenario, {"A": (3, 4)}, draft_len=DRAFT_LEN, device="cpu")
    assert script.prompt(1)[: len(ONE.prompt)] == script.prompt(0)


def test_plain_decoding_has_time_for_all_tokens_and_no_events() -> None:
    events = (Abort(step=2, request="A"),)
    plain = plain_of(msgspec.structs.replace(SCENARIO, events=events, steps_max=5))
    assert plain.events == () and plain.steps_max > plain.requests[0].max_tokens > ONE.max_tokens


def test_plain_decoding_runs_one_request_after_the_other() -> None:
    """Beside others a prompt of one token is padded, and a state goes on from that."""
    both = msgspec.structs.replace(SCENARIO, requests=(ONE, msgspec.structs.replace(ONE, name="Z")))
    first, second = plain_of(both).requests
    assert second.arrive >= first.arrive + len(first.prompt) + first.max_tokens


class LostAlone:
    """A server that loses its process in plain decoding."""

    def run(self, job: msgspec.Struct, timeout_s: float) -> int:
        assert isinstance(job, Task) and job.run_mode is RunMode.PLAIN
        return -11


def test_where_plain_decoding_is_lost_no_run_is_compared_with_it() -> None:
    engine = Engine((cast("ForkServer", LostAlone()),), fidelity=Fidelity.FULL)
    told = engine.run(SCENARIO, Plan())
    assert told.ending is Ending.LOST and told.exit_code == -11
    assert told.message.startswith("plain decoding of the same requests: the run's process ended")


def test_a_model_says_the_likeliest_token_of_the_request_that_is_asked_about() -> None:
    model = Model()
    give_weights(model)
    plain, computed = model.compute_logits, Computed(model)
    ids = torch.tensor([3, 2 * WIDTH + 5, 2 * WIDTH + 9])
    hidden = model.forward(ids)
    said = model.compute_logits(hidden)
    assert (said.argmax(-1) // WIDTH).tolist() == [0, 2, 2]
    bare = hidden.clone()
    bare[:, 0] = 0
    own = plain(bare)[1, 2 * WIDTH : 3 * WIDTH]
    assert torch.equal(said[1, 2 * WIDTH : 3 * WIDTH], own)
    computed.begin(lies=True)
    assert (model.compute_logits(hidden).argmax(-1) != said.argmax(-1)).all()


def test_what_is_sampled_is_not_computed() -> None:
    cell = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE, fidelity=Fidelity.FULL)
    warm = msgspec.structs.replace(ONE, temperature=0.1)
    assert cell.cannot_run(SCENARIO) == ""
    assert "hollow" in cell.cannot_run(msgspec.structs.replace(SCENARIO, requests=(warm,)))
    assert cell.command[-1] == "--fidelity full"
