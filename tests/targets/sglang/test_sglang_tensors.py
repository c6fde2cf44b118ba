"""Tensors of a pass, and what pools and the radix cache hold, of a scheduler that has no SGLang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from racegate.targets.common.inside.watch import Seen
from racegate.targets.sglang.inside.tensors import (
    ITEMS_MAX,
    free_lists,
    kept_prefixes,
    note_free,
    tensors_of,
    watch_tensors,
)


class DeviceWatch:
    """What is asked of a device is answered at once."""

    def __init__(self) -> None:
        self.inner: list[Seen] = []

    def on_host_now(self, tensors: dict[str, Any]) -> dict[str, object]:
        return {key: tensor.tolist() for key, tensor in tensors.items()}

    def inner_on_device(self, name: str, tensors: dict[str, Any], **known: object) -> None:
        self.inner_look(name, tensors, {}, **known)

    def inner_look(
        self, name: str, tensors: dict[str, Any], looks: dict[str, Any], **known: object
    ) -> None:
        seen = {key: looks.get(key, torch.clone)(one).tolist() for key, one in tensors.items()}
        self.inner.append((0, name, seen | known))


def test_places_numbers_and_flags_are_told_and_what_is_computed_is_not() -> None:
    owner = SimpleNamespace(
        slots=torch.tensor([3, 4]),
        mask=torch.tensor([True]),
        logits=torch.tensor([0.5]),
        none=torch.tensor([], dtype=torch.int64),
        cache=torch.zeros(ITEMS_MAX + 1, dtype=torch.int64),
        launch_time=torch.tensor([7]),
        rids=["A"],
    )
    assert list(tensors_of(owner)) == ["slots", "mask"]


def test_a_pass_and_what_attention_makes_of_it_are_told() -> None:
    watch: Any = DeviceWatch()

    class Backend:
        full_attn_backend = SimpleNamespace(forward_metadata=None)
        linear_attn_backend = SimpleNamespace(forward_metadata=None)

        def init_forward_metadata(self, batch: Any) -> str:
            places = SimpleNamespace(kv_indptr=torch.tensor([0, batch.batch_size]))
            self.full_attn_backend.forward_metadata = places
            return "made"

    backend: Any = Backend()
    runner = SimpleNamespace(
        attn_backend=backend, forward=lambda batch: backend.init_forward_metadata(batch)
    )
    watch_tensors(watch, runner)
    assert runner.forward(SimpleNamespace(batch_size=2, seq_lens=torch.tensor([5]))) == "made"
    assert watch.inner == [
        (0, "kept for kernels", {"seq_lens": [5]}),
        (0, "kept for attention", {"kv_indptr": [0, 2]}),
    ]


def told_as_free(*places: int) -> Seen:
    watch: Any = DeviceWatch()
    note_free(watch, {"slots": SimpleNamespace(free_pages=torch.tensor(places))})
    (found,) = watch.inner
    return found


def test_the_order_of_what_is_free_is_told() -> None:
    _, name, values = told_as_free(4, 2, 9)
    assert name == "kept of what is free" and values["slots.free_pages"] == [3, 15, 35]
    assert told_as_free(2, 4, 9) != told_as_free(4, 2, 9) == told_as_free(4, 2, 9)


def test_what_the_host_has_of_it_is_told_as_it_is() -> None:
    pools = {"rows": SimpleNamespace(free_slots=[1, 3]), "states": None}
    watch: Any = DeviceWatch()
    note_free(watch, pools)
    assert free_lists(pools) == {"rows.free_slots": [1, 3]} and not watch.inner


def node(used: object, locks: int) -> Any:
    return SimpleNamespace(last_access_time=used, lock_ref=locks, hit_count=9)


def test_prefixes_are_told_with_their_locks_and_the_order_of_their_use() -> None:
    found = kept_prefixes([((1,), node(30, 1)), ((1, 2), node(7, 0)), ((3,), node(12.5, 2))])
    assert [name.partition(" ")[0] for name in found] == ["1", "2", "1"] and len(found) == 3
    one, two, three = found.values()
    assert (one, two) == ({"lock_ref": 1, "used": 1}, {"lock_ref": 0, "used": 0})
    assert three == {"lock_ref": 2, "used": None}  # a clock
