"""Loaders that bring batches to the device ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, TensorDataset

from .registry import N, observe, racy, silent

BATCHES = 4


def _batches() -> list[torch.Tensor]:
    """Pinned batches of one value each."""
    return [torch.full((N,), index + 1.0, pin_memory=True) for index in range(BATCHES)]


def _consume(batches: Iterator[torch.Tensor]) -> float:
    """Folds the batches into one number that depends on their order and values."""
    total = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    for batch in batches:
        total.mul_(10).add_(batch)
        del batch
    torch.cuda.synchronize()
    return total[0].item()


def _without_wait() -> Iterator[torch.Tensor]:
    loads = torch.cuda.Stream()
    kept = []
    for batch in _batches():
        with torch.cuda.stream(loads):
            kept.append(batch.to("cuda", non_blocking=True))
        yield kept[-1]
    torch.cuda.synchronize()


@racy(pair="prefetcher")
def prefetcher_without_wait() -> None:
    """The prefetcher hands out a batch whose upload on its own stream nobody waits for."""
    observe("total", _consume(_without_wait()))


def _without_record() -> Iterator[torch.Tensor]:
    loads = torch.cuda.Stream()
    for batch in _batches():
        with torch.cuda.stream(loads):
            ahead = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(loads)
        yield ahead
        del ahead


@racy(pair="prefetcher")
def prefetcher_without_record_stream() -> None:
    """The prefetcher waits but does not record: a batch let go is overwritten by the next upload
    while it is used.
    """
    observe("total", _consume(_without_record()))


class _Prefetcher:
    """One batch ahead, as in NVIDIA's examples: wait, record, hand out, load the next."""

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self.batches = iter(batches)
        self.loads = torch.cuda.Stream()
        self.ahead: torch.Tensor | None = None
        self._load()

    def _load(self) -> None:
        batch = next(self.batches, None)
        with torch.cuda.stream(self.loads):
            self.ahead = None if batch is None else batch.to("cuda", non_blocking=True)

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.ahead is not None:
            torch.cuda.current_stream().wait_stream(self.loads)
            batch, self.ahead = self.ahead, None
            batch.record_stream(torch.cuda.current_stream())
            self._load()
            yield batch
            del batch


@silent(pair="prefetcher")
def prefetcher() -> None:
    """The consumer's stream waits for the upload and is recorded on the batch."""
    observe("total", _consume(iter(_Prefetcher(_batches()))))


def _one_pinned_buffer() -> Iterator[torch.Tensor]:
    buffer = torch.zeros(N, pin_memory=True)
    for index in range(BATCHES):
        buffer.fill_(index + 1.0)
        yield buffer


def _own_pinned_buffers() -> Iterator[torch.Tensor]:
    for index in range(BATCHES):
        yield torch.full((N,), index + 1.0).pin_memory()


def _uploaded(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    for batch in batches:
        yield batch.to("cuda", non_blocking=True)


@racy(pair="loader_buffer")
def loader_refills_its_buffer() -> None:
    """The loader yields one pinned buffer again and again; the consumer uploads it without
    blocking.
    """
    observe("total", _consume(_uploaded(_one_pinned_buffer())))


@silent(pair="loader_buffer")
def loader_yields_own_buffers() -> None:
    """The loader yields pinned memory of its own for each batch."""
    observe("total", _consume(_uploaded(_own_pinned_buffers())))


@silent(pair="loader_buffer")
def loader_of_torch_pins() -> None:
    """`DataLoader(pin_memory=True)` pins a new batch each time."""
    data = TensorDataset(torch.arange(1.0, BATCHES + 1))
    loader = DataLoader(data, batch_size=1, pin_memory=True)
    observe("total", _consume(batch.to("cuda", non_blocking=True) for (batch,) in loader))


def _two_device_slots(*, waits_for_use: bool) -> Iterator[torch.Tensor]:
    """Uploads ahead into two slots on the device in turn."""
    loads, slots = torch.cuda.Stream(), torch.zeros(2, N, device="cuda")
    torch.cuda.synchronize()
    for index, batch in enumerate(_batches()):
        if waits_for_use:
            loads.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(loads):
            slots[index % 2].copy_(batch, non_blocking=True)
        torch.cuda.current_stream().wait_stream(loads)
        yield slots[index % 2]
    torch.cuda.synchronize()


@racy(pair="loader_slots")
def loader_slots_refilled_while_used() -> None:
    """The loader fills a device slot again without waiting for the stream that computes on it."""
    observe("total", _consume(_two_device_slots(waits_for_use=False)))


@silent(pair="loader_slots")
def loader_slots_refilled_after_use() -> None:
    """Before it fills a slot the loading stream waits for the computing one."""
    observe("total", _consume(_two_device_slots(waits_for_use=True)))
