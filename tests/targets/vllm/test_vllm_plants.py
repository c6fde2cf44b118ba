"""What is made wrong behind a runner's back, to see which observations change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from racegate.targets.common.inside.naming import host_tensors
from racegate.targets.vllm.inside.plants import TOLD


class Mirrored:
    """A value of the host as a tensor and as an array on its memory, and one that is an array."""

    def __init__(self) -> None:
        self.cpu = torch.zeros(3, dtype=torch.int32)
        self.np = self.cpu.numpy()
        self.computed = np.ones(2, dtype=np.int32)
        self.names = np.array(["A"])
        self.fixed = np.ones(1)
        self.fixed.flags.writeable = False


def scheduled() -> SimpleNamespace:
    """A step in which A and C go on, A with drafts, and B begins with a prompt."""
    return SimpleNamespace(
        num_scheduled_tokens={"A": 3, "B": 5, "C": 1},
        total_num_scheduled_tokens=9,
        scheduled_spec_decode_tokens={"A": [7, 8]},
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=["A", "C"],
            new_block_ids=[None, None],
            num_computed_tokens=[9, 4],
            num_output_tokens=[2, 1],
        ),
    )


def test_what_the_host_alone_has_is_told_once_and_as_its_own_memory() -> None:
    found = dict(host_tensors(Mirrored(), __name__))
    assert set(found) == {"cpu", "computed"}


def test_an_array_that_is_made_wrong_is_the_runners_own() -> None:
    runner = Mirrored()
    for _, tensor in host_tensors(runner, __name__):
        tensor.add_(1)
    assert runner.np.tolist() == [1, 1, 1] and runner.computed.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("told", "counts", "drafts"),
    [
        ("scheduled drafts", {"A": 2, "B": 5, "C": 1}, {"A": [7]}),
        ("scheduled tokens", {"A": 3, "B": 4, "C": 1}, {"A": [7, 8]}),
        ("scheduled requests", {"A": 3, "B": 5}, {"A": [7, 8]}),
    ],
)
def test_what_the_scheduler_tells_stays_in_agreement_with_itself(
    told: str, counts: dict[str, int], drafts: dict[str, list[int]]
) -> None:
    step = scheduled()
    assert TOLD[told](step) == 1
    assert step.num_scheduled_tokens == counts
    assert step.total_num_scheduled_tokens == sum(counts.values())
    assert step.scheduled_spec_decode_tokens == drafts
    lists = vars(step.scheduled_cached_reqs).values()
    assert {len(each) for each in lists} == {len(counts.keys() & {"A", "C"})}


def test_who_has_a_single_draft_has_none_then() -> None:
    step = scheduled()
    step.scheduled_spec_decode_tokens = {"A": [7]}
    assert TOLD["scheduled drafts"](step) == 1
    assert step.scheduled_spec_decode_tokens == {}


@pytest.mark.parametrize(
    "leave",
    [
        lambda step: step.num_scheduled_tokens.pop("C"),
        lambda step: step.scheduled_cached_reqs.req_ids.clear(),
    ],
)
def test_where_no_other_request_is_left_all_stay(leave: Callable[[SimpleNamespace], None]) -> None:
    step = scheduled()
    step.num_scheduled_tokens.pop("B")
    leave(step)
    before = dict(step.num_scheduled_tokens)
    assert TOLD["scheduled requests"](step) == 0
    assert step.num_scheduled_tokens == before
