"""What is observed of samplers: what each row is sampled with, whatever the runner calls it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from racegate.targets.vllm.inside.sampling import watch_sampling
from racegate.targets.vllm.inside.scripted.model import vocab_of
from racegate.targets.vllm.inside.scripted.params import refusals
from racegate.targets.vllm.inside.standins import verify_in_chunks
from racegate.targets.vllm.wire import DRAFTS_USUAL, VocabularyMode

SAMPLERS = ("vllm.v1.sample.sampler", "vllm.v1.worker.gpu.sample.sampler")
VERIFIERS = (
    "vllm.v1.sample.rejection_sampler",
    "vllm.v1.worker.gpu.spec_decode.rejection_sampler",
)
FILTERS = "vllm.v1.sample.ops.topk_topp_sampler"
INF = float("inf")


class Notes:
    """A watch that looks at once."""

    def __init__(self) -> None:
        self.inner: list[tuple[str, dict[str, object]]] = []
        self.counters = Counter[str]()  # of one run

    def inner_on_device(self, name: str, tensors: dict[str, Any], **known: object) -> None:
        self.inner_look(name, tensors, {}, **known)

    def inner_look(self, name: str, tensors: Any, looks: Any, **known: object) -> None:
        kept = {key: looks.get(key, torch.clone)(one).tolist() for key, one in tensors.items()}
        self.inner.append((name, {**known, **kept}))

    @contextmanager
    def own(self) -> Iterator[None]:
        yield

    def memory_of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def module(monkeypatch: pytest.MonkeyPatch, path: str, **content: object) -> Any:
    made = ModuleType(path)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, path, made)
    return made


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Notes:
    for path in ("vllm", *SAMPLERS, *VERIFIERS):
        parts = path.split(".")
        for depth in range(1, len(parts)):
            parent = ".".join(parts[:depth])
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.delitem(sys.modules, path, raising=False)
    return Notes()


def rows() -> list[str]:
    return ["A", "B"]


class First:
    """The first runner's sampler."""

    def forward(self, logits: Any, sampling_metadata: Any, predict_bonus_token: int) -> str:
        return "sampled"

    def sample(self, logits: Any, sampling_metadata: Any) -> str:
        return "sampled"


def metadata(**changed: object) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(11)
    known: dict[str, object] = {
        "temperature": torch.tensor([0.0, 0.5]), "top_p": None, "no_penalties": True,
        "presence_penalties": torch.tensor([1.0, 2.0]), "generators": {1: generator},
        "output_token_ids": [[3], []],
    }  # fmt: skip
    return SimpleNamespace(**(known | changed))


def test_parameters_are_told_by_row_and_seeds_by_request(
    monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    sampler = module(monkeypatch, SAMPLERS[0], Sampler=type("Sampler", (First,), {})).Sampler()
    watch_sampling(watch, rows)
    assert sampler.forward(None, metadata(), predict_bonus_token=1) == "sampled"
    told = {"rows": ["A", "B"], "seeds": {"B": 11}, "temperature": [0.0, 0.5]}
    assert watch.inner == [("sampling", told)]


def test_penalties_count_only_where_they_are_used(
    monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    sampler = module(monkeypatch, SAMPLERS[0], Sampler=type("Sampler", (First,), {})).Sampler()
    watch_sampling(watch, rows)
    for is_unused in (True, False):
        sampler.forward(None, metadata(no_penalties=is_unused), predict_bonus_token=0)
    (_, unused), (_, used) = watch.inner
    assert "presence_penalties" not in unused
    assert used["presence_penalties"] == [1.0, 2.0]
    assert used["outputs"] == [[3], []]


def test_logits_are_told_by_their_sum_and_by_what_a_mask_leaves(
    monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    sampler = module(monkeypatch, SAMPLERS[0], Sampler=type("Sampler", (First,), {})).Sampler()
    watch_sampling(watch, rows)
    logits = torch.tensor([[10.0, 0.0, -INF], [1.0, 2.0, 3.001]])
    sampler.sample(logits, metadata())
    assert watch.inner == [("logits", {"rows": rows(), "sums": [10.0, 6.0], "allowed": [2, 3]})]


def test_the_tokens_that_penalties_are_for_are_told(
    monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    def apply_all_penalties(logits: Any, prompt_token_ids: Any, output_token_ids: Any) -> None:
        output_token_ids[0].append(9)

    place = module(monkeypatch, SAMPLERS[0], apply_all_penalties=apply_all_penalties)
    watch_sampling(watch, rows)
    place.apply_all_penalties(None, torch.tensor([[5, 6]]), [[7, -1]])
    assert watch.inner == [("penalties", {"rows": rows(), "output": [[7, -1]], "prompt": [[5, 6]]})]


@pytest.mark.parametrize("path", VERIFIERS)
def test_drafts_are_told_with_the_logits_they_are_verified_by(
    monkeypatch: pytest.MonkeyPatch, watch: Any, path: str
) -> None:
    """The runners name the drafts otherwise."""

    def first(draft_token_ids: Any, target_logits: Any) -> int:
        return 1

    def second(target_logits: Any, draft_sampled: Any) -> int:
        return 1

    is_first = path == VERIFIERS[0]
    place = module(monkeypatch, path, rejection_sample=first if is_first else second)
    watch_sampling(watch, rows)
    drafts, logits = torch.tensor([5, 6]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    place.rejection_sample(*((drafts, logits) if is_first else (logits, drafts)))
    names = ("draft_token_ids" if is_first else "draft_sampled", "target_logits")
    sizes = {f"size of {names[0]}": [2], f"size of {names[1]}": [2, 2]}
    told = {"rows": rows(), "drafts": [5, 6], "sums": [3.0, 7.0], "allowed": [2, 2], **sizes}
    assert watch.inner == [("verification", told)]


def test_a_row_of_the_second_runner_has_the_state_that_its_index_names(
    monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    class Sampler:
        sampling_states = SimpleNamespace(
            temperature=SimpleNamespace(gpu=torch.tensor([0.1, 0.2, 0.3])),
            seeds=SimpleNamespace(gpu=torch.tensor([7, 8, 9])),
        )

        def apply_sampling_params(self, logits: Any, expanded_idx_mapping: Any) -> Any:
            return logits * 2

    sampler = module(monkeypatch, SAMPLERS[1], Sampler=Sampler).Sampler()
    watch_sampling(watch, rows)
    logits = torch.tensor([[1.0], [2.0]])
    sampler.apply_sampling_params(logits, torch.tensor([2, 0], dtype=torch.int32))
    ((name, told),) = watch.inner
    assert name == "sampling" and told["seeds"] == [9, 7] and told["sums"] == [2.0, 4.0]
    assert told["temperature"] == pytest.approx([0.3, 0.1])


def test_a_chunk_of_a_batch_has_the_requests_of_its_states(
    monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    class Sampler:
        sampling_states = SimpleNamespace()
        req_states = SimpleNamespace(index_to_req_id={0: "Y-0123abcd", 2: "X-0123abcd"})

        def apply_sampling_params(
            self, logits: Any, expanded_idx_mapping: Any, idx_mapping_np: Any
        ) -> Any:
            return logits

    sampler = module(monkeypatch, SAMPLERS[1], Sampler=Sampler).Sampler()
    watch_sampling(watch, rows)
    assert len(rows()) == 2
    sampler.apply_sampling_params(torch.tensor([[1.0], [2.0]]), torch.tensor([2, 2]), [2])
    ((_, told),) = watch.inner
    assert told["rows"] == ["X"] and told["sums"] == [1.0, 2.0]


@pytest.mark.parametrize("vocabulary", VocabularyMode)
def test_a_chunk_has_the_rows_of_two_requests_whatever_the_vocabulary(
    watch: Notes, monkeypatch: pytest.MonkeyPatch, vocabulary: VocabularyMode
) -> None:
    """As the release counts the rows of logits that a chunk may hold: four bytes for each token."""
    verifies = module(monkeypatch, VERIFIERS[1], MAX_CHUNK_BYTES=2**30)
    vocab = vocab_of(vocabulary)
    verify_in_chunks(vocab)
    assert verifies.MAX_CHUNK_BYTES // (vocab * 4) == 2 * (DRAFTS_USUAL + 1)


def test_what_newer_releases_raise_for_a_request_is_no_error_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of before have no such module, or a ValueError in it; 0.27.1 and later have neither."""
    refused = type("VLLMClientError", (Exception,), {})
    newer: Any = ModuleType("vllm.exceptions")
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.exceptions", None)
    assert not issubclass(refused, refusals()) and ValueError in refusals()
    monkeypatch.setitem(sys.modules, "vllm.exceptions", newer)
    assert set(refusals()) == {ValueError}
    newer.VLLMClientError = refused
    assert issubclass(refused, refusals()) and ValueError in refusals()


def test_a_run_filters_several_rows_by_the_kernel_once(
    watch: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(logits: Any, k: Any, p: Any, *, has_topp_only_rows: bool = True) -> str:
        return f"kernel, {has_topp_only_rows}"

    twin = lambda logits, k, p: "twin"  # noqa: E731
    made = filters(monkeypatch, kernel, twin)
    watch_sampling(watch, rows)  # type: ignore[arg-type]
    one, two = torch.zeros(1, 4), torch.zeros(2, 4)
    filtered = made.apply_top_k_top_p_triton
    assert [filtered(each, None, None) for each in (one, two)] == ["twin", "kernel, True"]
    assert filtered(two, None, None, has_topp_only_rows=False) == "twin"
    watch.counters.clear()  # the next run
    assert filtered(two, None, None, has_topp_only_rows=False) == "kernel, False"
    assert made.HAS_TRITON


def test_older_releases_filter_by_the_twin_alone(
    watch: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filters(monkeypatch, lambda logits, k, p: "kernel", lambda logits, k, p: "twin")
    watch_sampling(watch, rows)  # type: ignore[arg-type]
    assert not made.HAS_TRITON


def filters(monkeypatch: pytest.MonkeyPatch, kernel: object, twin: object) -> Any:
    for parent in ("vllm.v1.sample", "vllm.v1.sample.ops"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    return module(
        monkeypatch,
        FILTERS,
        HAS_TRITON=True,
        apply_top_k_top_p_triton=kernel,
        apply_top_k_top_p_pytorch=twin,
    )
