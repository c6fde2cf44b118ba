"""Benchmarks of the kernels on a GPU, each as a share of the copy bandwidth of the same card.

A state update moves what it must if it reads each row's live state once, writes the state after
every token once, and reads and writes the tokens' vectors once. The bytes are counted from the
sizes, not from the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from racegate.bench.virtual import BenchEntry, entry_of
from racegate_kernels.backend import Backend

SHARE_TARGET = 0.85
SPEEDUP_TARGET = 1.3


class Clock(Protocol):
    """What times kernels."""

    def median_ms(self, job: Callable[[], object]) -> float:
        """The median time of a job on the device, warmed up and repeated."""
        ...


class DeviceClock:
    """Device events around repeated launches; the cache is cleared between them."""

    def median_ms(self, job: Callable[[], object]) -> float:
        """See Clock."""
        from triton.testing import do_bench

        return float(do_bench(job, warmup=50, rep=300, return_mode="median"))


class UpdateSizes(msgspec.Struct, frozen=True, kw_only=True):
    """A state update of a batch of decode rows, each with all its drafts."""

    rows: int
    drafts: int
    heads: int
    head_size: int
    state_size: int

    @property
    def state_bytes(self) -> int:
        """One state of one row, float32."""
        return 4 * self.heads * self.head_size * self.state_size

    @property
    def states_moved_bytes(self) -> int:
        """The live states read, and one state written per token."""
        return self.rows * (2 + self.drafts) * self.state_bytes

    def vectors_moved_bytes(self, per_head: int, per_token: int) -> int:
        """The tokens' vectors, float32, of so many numbers per head and for all heads together."""
        tokens = self.rows * (1 + self.drafts)
        return 4 * tokens * (self.heads * per_head + per_token)


def mamba2_bytes(sizes: UpdateSizes) -> int:
    """x, dt and y per head; B and C for all heads."""
    per_head = 2 * sizes.head_size + 1
    return sizes.states_moved_bytes + sizes.vectors_moved_bytes(per_head, 2 * sizes.state_size)


def gated_delta_bytes(sizes: UpdateSizes) -> int:
    """q, k, v, b, g and the output per head."""
    per_head = 2 * sizes.state_size + 2 * sizes.head_size + 2
    return sizes.states_moved_bytes + sizes.vectors_moved_bytes(per_head, 0)


# Production sizes.
MAMBA2 = UpdateSizes(rows=256, drafts=3, heads=128, head_size=64, state_size=128)
GATED_DELTA = UpdateSizes(rows=256, drafts=3, heads=32, head_size=128, state_size=128)
COPY_BYTES = 1 << 32
COUNT_ROWS = (64, 1_024, 65_536)


def kernel_entries(
    kernels: Backend,
    clock: Clock,
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


def copy_gb_per_second(clock: Clock, *, device: str, size_bytes: int) -> float:
    """Bytes read plus bytes written over time, of a copy of random numbers on the device."""
    import torch

    source = torch.rand(size_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size_bytes / clock.median_ms(lambda: target.copy_(source)) / 1e6


def mamba2_job(kernels: Backend, sizes: UpdateSizes, *, device: str) -> Callable[[], object]:
    """A launch of the Mamba2 update on random numbers."""
    draw = _Drawn(device)
    tokens, heads = sizes.rows * (1 + sizes.drafts), sizes.heads
    inputs = (
        draw(tokens, heads, sizes.head_size),
        draw(tokens, sizes.state_size),
        draw(tokens, sizes.state_size),
        draw(tokens, heads),
        draw(heads),
        draw(heads),
        draw(heads),
    )
    rows = _row_inputs(draw, sizes)
    return lambda: kernels.mamba2_update(*inputs, *rows)


def gated_delta_job(kernels: Backend, sizes: UpdateSizes, *, device: str) -> Callable[[], object]:
    """A launch of the gated delta update on random numbers."""
    draw = _Drawn(device)
    tokens, heads = sizes.rows * (1 + sizes.drafts), sizes.heads
    inputs = (
        draw(tokens, heads, sizes.state_size),
        draw(tokens, heads, sizes.state_size),
        draw(tokens, heads, sizes.head_size),
        draw(tokens, heads),
        draw(tokens, heads),
        draw(heads),
        draw(heads),
    )
    rows = _row_inputs(draw, sizes)
    return lambda: kernels.gated_delta_update(*inputs, *rows)


class _Drawn:
    """Random numbers on a device, the same in every run."""

    def __init__(self, device: str) -> None:
        import torch

        self.device = device
        self._generator = torch.Generator(device=device).manual_seed(1)

    def __call__(self, *shape: int) -> Any:
        import torch

        return torch.randn(*shape, device=self.device, generator=self._generator)

    def below(self, most: int, *shape: int) -> Any:
        import torch

        drawn = torch.randint(most, shape, device=self.device, generator=self._generator)
        return drawn.to(torch.int32)


def _row_inputs(draw: _Drawn, sizes: UpdateSizes) -> tuple[Any, ...]:
    """State pool, table, row starts, accepted counts, computed counts, phase: every row decodes, in
    shuffled blocks of its own.
    """
    import torch

    width, rows, device = 1 + sizes.drafts, sizes.rows, draw.device
    state = draw(1 + rows * width, sizes.heads, sizes.head_size, sizes.state_size)
    order = draw(rows * width).argsort().to(torch.int32)
    ones = torch.ones(rows, dtype=torch.int32, device=device)
    starts = torch.arange(0, rows * width + 1, width, dtype=torch.int32, device=device)
    return (
        state,
        (1 + order).reshape(rows, width).contiguous(),
        starts,
        1 + draw.below(width, rows),
        100 * ones,
        ones,
    )


def _count_entries(
    kernels: Backend, clock: Clock, rows: int, *, device: str, drafts: int = 3
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
