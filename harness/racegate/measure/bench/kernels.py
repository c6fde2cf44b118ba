"""Benchmarks of the kernels on a GPU, each as a share of the copy bandwidth of the same card.

A state update moves what it must if it reads each row's live state once, writes the state after
every token once, and reads and writes the tokens' vectors once. The bytes are counted from the
sizes, not from the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from racegate.measure.bench.virtual import BenchEntry, entry_of
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

SHARE_TARGET = 0.85
SPEEDUP_TARGET = 1.3


class DeviceClock:
    """Device events around repeated launches; the cache is cleared between them."""

    def median_ms(self, job: Callable[[], object]) -> float:
        """The median time of a job on the device, warmed up and repeated."""
        from triton.testing import do_bench

        return float(do_bench(job, warmup=50, rep=300, return_mode="median"))


class UpdateSizes(msgspec.Struct, frozen=True, kw_only=True):
    """A state update of a batch of decode rows, each with all its drafts.

    A convolution has heads * head_size channels, and as many taps as state_size says.

    item_bytes: of a number, in states and vectors: 4 float32, 2 bfloat16
    tables: tables over blocks of their own, so that launches in turn do not meet in the cache
    """

    rows: int
    drafts: int
    heads: int
    head_size: int
    state_size: int
    item_bytes: int = 4
    tables: int = 1

    @property
    def state_bytes(self) -> int:
        """One state of one row."""
        return self.item_bytes * self.heads * self.head_size * self.state_size

    @property
    def states_moved_bytes(self) -> int:
        """The live states read, and one state written per token."""
        return self.rows * (2 + self.drafts) * self.state_bytes

    def vectors_moved_bytes(self, per_head: int, per_token: int) -> int:
        """The tokens' vectors, of so many numbers per head and for all heads together."""
        tokens = self.rows * (1 + self.drafts)
        return self.item_bytes * tokens * (self.heads * per_head + per_token)


def mamba2_bytes(sizes: UpdateSizes) -> int:
    """x, dt and y per head; B and C for all heads."""
    per_head = 2 * sizes.head_size + 1
    return sizes.states_moved_bytes + sizes.vectors_moved_bytes(per_head, 2 * sizes.state_size)


def gated_delta_bytes(sizes: UpdateSizes) -> int:
    """q, k, v, b, g and the output per head."""
    per_head = 2 * sizes.state_size + 2 * sizes.head_size + 2
    return sizes.states_moved_bytes + sizes.vectors_moved_bytes(per_head, 0)


def convolution_bytes(sizes: UpdateSizes) -> int:
    """The windows read and written, the tokens' inputs and outputs.

    Of a channel's window a step needs a part only; memory gives whole sectors.
    """
    channels, window = sizes.heads * sizes.head_size, sizes.state_size - 1 + sizes.drafts
    return sizes.item_bytes * sizes.rows * channels * 2 * (window + 1 + sizes.drafts)


# Production sizes.
MAMBA2 = UpdateSizes(rows=256, drafts=3, heads=128, head_size=64, state_size=128)
GATED_DELTA = UpdateSizes(rows=256, drafts=3, heads=32, head_size=128, state_size=128)
# In front of it: queries, keys and values of its heads.
CONVOLUTION = UpdateSizes(rows=256, drafts=3, heads=96, head_size=128, state_size=4)
COPY_BYTES = 1 << 32
COUNT_ROWS = (64, 1_024, 65_536)


def kernel_entries(
    kernels: Backend,
    clock: DeviceClock,
    *,
    device: str = "cuda",
    copy_bytes: int = COPY_BYTES,
    mamba2: UpdateSizes = MAMBA2,
    gated_delta: UpdateSizes = GATED_DELTA,
    count_rows: tuple[int, ...] = COUNT_ROWS,
) -> list[BenchEntry]:
    """All of them, the copy bandwidth first."""
    bandwidth = copy_gb_per_second(clock, device=device, size_bytes=copy_bytes)
    entries = [entry_of("copy_bandwidth", bandwidth, "GB/s", f"copy of {copy_bytes:,} bytes")]
    for name, sizes, make, size_bytes in (
        ("mamba2_update", mamba2, mamba2_job, mamba2_bytes(mamba2)),
        ("gated_delta_update", gated_delta, gated_delta_job, gated_delta_bytes(gated_delta)),
    ):
        ms = clock.median_ms(make(kernels, sizes, device=device))
        moved = size_bytes / ms / 1e6
        detail = f"{sizes.rows} rows, k {sizes.drafts}, {size_bytes:,} bytes in {ms:.4g} ms"
        entries.append(entry_of(f"{name}_bandwidth", moved, "GB/s", detail))
        limit = f"of the copy bandwidth; target {SHARE_TARGET}"
        entries.append(entry_of(f"{name}_share", moved / bandwidth, "ratio", limit))
    for rows in count_rows:
        entries += _count_entries(kernels, clock, rows, device=device)
    return entries


def copy_gb_per_second(clock: DeviceClock, *, device: str, size_bytes: int) -> float:
    """Bytes read plus bytes written over time, of a copy of random numbers on the device."""
    import torch

    source = torch.rand(size_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size_bytes / clock.median_ms(lambda: target.copy_(source)) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateInputs:
    """Arguments of a state update, on the device.

    vectors: of the tokens; parameters: of the heads; tables: one or more of [R, 1 + K] int32
    counts: row starts, accepted counts, computed counts, phase
    streamed: vectors of one table each, where they are too much to be in the cache already
    """

    vectors: tuple[Array, ...]
    parameters: tuple[Array, ...]
    state: Array
    tables: tuple[Array, ...]
    counts: tuple[Array, ...]
    streamed: tuple[Array, ...] = ()

    def arguments(self, table: int = 0) -> tuple[Array, ...]:
        """In the order of the kernels."""
        vectors = (*self.streamed[table : table + 1], *self.vectors)
        return (*vectors, *self.parameters, self.state, self.tables[table], *self.counts)


def mamba2_job(kernels: Backend, sizes: UpdateSizes, *, device: str) -> Callable[[], object]:
    """A launch of the Mamba2 update on random numbers."""
    inputs = mamba2_inputs(sizes, device=device).arguments()
    return lambda: kernels.mamba2_update(*inputs)


def gated_delta_job(kernels: Backend, sizes: UpdateSizes, *, device: str) -> Callable[[], object]:
    """A launch of the gated delta update on random numbers."""
    inputs = gated_delta_inputs(sizes, device=device).arguments()
    return lambda: kernels.gated_delta_update(*inputs)


def mamba2_inputs(sizes: UpdateSizes, *, device: str) -> UpdateInputs:
    """Random numbers: x, B, C and dt of the tokens; bias of dt, A and skip of the heads."""
    draw = _Drawn(device, item_bytes=sizes.item_bytes)
    tokens, heads = sizes.rows * (1 + sizes.drafts), sizes.heads
    vectors = (
        draw(tokens, heads, sizes.head_size),
        draw(tokens, sizes.state_size),
        draw(tokens, sizes.state_size),
        draw(tokens, heads),
    )
    return _update_inputs(draw, sizes, vectors, (draw(heads), draw(heads), draw(heads)))


def gated_delta_inputs(sizes: UpdateSizes, *, device: str) -> UpdateInputs:
    """Random numbers: q, k, v, b and g of the tokens; bias of g and A of the heads."""
    draw = _Drawn(device, item_bytes=sizes.item_bytes)
    tokens, heads = sizes.rows * (1 + sizes.drafts), sizes.heads
    vectors = (
        draw(tokens, heads, sizes.state_size),
        draw(tokens, heads, sizes.state_size),
        draw(tokens, heads, sizes.head_size),
        draw(tokens, heads),
        draw(tokens, heads),
    )
    return _update_inputs(draw, sizes, vectors, (draw(heads), draw(heads)))


def convolution_inputs(sizes: UpdateSizes, *, device: str) -> UpdateInputs:
    """Random numbers: the tokens' inputs, the taps of the channels; a block per row and table."""
    draw = _Drawn(device, item_bytes=sizes.item_bytes)
    tokens, channels = sizes.rows * (1 + sizes.drafts), sizes.heads * sizes.head_size
    streamed = tuple(draw(tokens, channels) for _ in range(sizes.tables))
    taps, window = sizes.state_size, (channels, sizes.state_size - 1 + sizes.drafts)
    inputs = _update_inputs(draw, sizes, (), (draw(channels, taps),), state_shape=window)
    blocks = tuple(table[:, 0] for table in inputs.tables)
    return replace(inputs, tables=blocks, streamed=streamed)


class _Drawn:
    """Random numbers on a device, the same in every run."""

    def __init__(self, device: str, *, item_bytes: int = 4) -> None:
        import torch

        self.device = device
        self._dtype = {4: torch.float32, 2: torch.bfloat16}[item_bytes]
        self.generator = torch.Generator(device=device).manual_seed(1)

    def __call__(self, *shape: int) -> Any:
        import torch

        drawn = torch.empty(*shape, dtype=self._dtype, device=self.device)
        return drawn.normal_(generator=self.generator)

    def below(self, most: int, *shape: int) -> Any:
        import torch

        drawn = torch.randint(most, shape, device=self.device, generator=self.generator)
        return drawn.to(torch.int32)


def _update_inputs(
    draw: _Drawn,
    sizes: UpdateSizes,
    vectors: tuple[Array, ...],
    parameters: tuple[Array, ...],
    *,
    state_shape: tuple[int, ...] | None = None,
) -> UpdateInputs:
    """Every row decodes, in shuffled blocks of its own."""
    import torch

    width, rows, device = 1 + sizes.drafts, sizes.rows, draw.device
    blocks = sizes.tables * rows * width
    order = torch.randperm(blocks, device=device, generator=draw.generator).to(torch.int32)
    ones = torch.ones(rows, dtype=torch.int32, device=device)
    shape = state_shape or (sizes.heads, sizes.head_size, sizes.state_size)
    starts = torch.arange(0, rows * width + 1, width, dtype=torch.int32, device=device)
    return UpdateInputs(
        vectors=vectors,
        parameters=parameters,
        state=draw(1 + blocks, *shape),
        # Each in memory of its own: Triton compiles again for what begins at another alignment.
        tables=tuple(table.clone() for table in (1 + order).reshape(-1, rows, width)),
        counts=(starts, 1 + draw.below(width, rows), 100 * ones, ones),
    )


def _count_entries(
    kernels: Backend, clock: DeviceClock, rows: int, *, device: str, drafts: int = 3
) -> list[BenchEntry]:
    """Counting accepted tokens: one kernel against the two ways it used to be written."""
    import torch

    draw = _Drawn(device)
    counts = 1 + draw.below(1 + drafts, rows)
    place = torch.arange(1 + drafts, device=device)
    tokens = draw.below(1_000, rows, 1 + drafts)
    sampled = torch.where(place < counts[:, None], tokens, -1).contiguous()
    accepted = torch.empty(rows, dtype=torch.int32, device=device)
    sentinel = torch.full((rows, 1), -1, dtype=torch.int32, device=device)

    def cat_argmax() -> Any:
        return (torch.cat([sampled, sentinel], dim=1) == -1).to(torch.int32).argmax(dim=1)

    ours = clock.median_ms(lambda: kernels.accepted_count(sampled, accepted))
    by_cat = clock.median_ms(cat_argmax)
    by_sum = clock.median_ms(lambda: (sampled != -1).sum(1))
    assert torch.equal(accepted, counts), "the kernel counts wrongly"
    assert torch.equal(cat_argmax().to(torch.int32), counts), "cat and argmax count wrongly"
    return [
        entry_of(f"accepted_count_{rows}_us", 1e3 * ours, "us", "one kernel"),
        entry_of(
            f"accepted_count_{rows}_over_cat_argmax",
            by_cat / ours,
            "ratio",
            f"cat and argmax take {1e3 * by_cat:.3g} us; target {SPEEDUP_TARGET}",
        ),
        entry_of(
            f"accepted_count_{rows}_over_sum",
            by_sum / ours,
            "ratio",
            f"(x != -1).sum(1) takes {1e3 * by_sum:.3g} us",
        ),
    ]
