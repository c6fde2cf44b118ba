"""State updates of this project and of its peers, compared in one run: first what they compute,
then how long they take, in turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import msgspec
import numpy as np

from racegate.measure.bench.kernels import (
    CONVOLUTION,
    COPY_BYTES,
    GATED_DELTA,
    MAMBA2,
    DeviceClock,
    UpdateInputs,
    UpdateSizes,
    convolution_bytes,
    convolution_inputs,
    copy_gb_per_second,
    gated_delta_bytes,
    gated_delta_inputs,
    mamba2_bytes,
    mamba2_inputs,
)
from racegate.measure.bench.peers import Contender, Update
from racegate.measure.bench.virtual import BenchEntry, entry_of
from racegate_kernels.backend import EAGER
from racegate_kernels.numerics import Array

ROWS = (1, 8, 32, 128, 256)
DRAFTS = (3, 0)
ITEM_BYTES = (4, 2)
DTYPES = {4: "float32", 2: "bfloat16"}
# Relative, by the norm: float32 as tests of the kernels have it; bfloat16 keeps eight bits.
TOLERANCES = {4: 2e-5, 2: 2.0**-7}
CHECKED_ROWS = 3
# What one round of a contender moves at least, over blocks that are not in the cache any more.
ROUND_BYTES = 1 << 30
TABLES_MAX = 64
LAUNCHES_MIN = 4
ROUNDS = 11
WARM_UPS = 2

INPUTS = {
    Update.MAMBA2: mamba2_inputs,
    Update.GATED_DELTA: gated_delta_inputs,
    Update.CONVOLUTION: convolution_inputs,
}
BYTES = {
    Update.MAMBA2: mamba2_bytes,
    Update.GATED_DELTA: gated_delta_bytes,
    Update.CONVOLUTION: convolution_bytes,
}
SIZES = {
    Update.MAMBA2: MAMBA2,
    Update.GATED_DELTA: GATED_DELTA,
    Update.CONVOLUTION: CONVOLUTION,
}

Launch = Callable[[], object]


class GraphClock:
    """Launches of a contender as one graph; the graphs replayed in turn, between device events.

    So neither the time that a launcher takes on the host nor a drift of the card counts.
    """

    def medians_ms(self, contenders: Sequence[Sequence[Launch]]) -> list[float]:
        """The median time of a launch of each contender, which has one launch per table."""
        import torch

        captured = [_capture(launches) for launches in contenders]
        times: list[list[float]] = [[] for _ in captured]
        for number in range(WARM_UPS + ROUNDS):
            # Not timed: behind it the device is never idle, as it would be for the first in turn.
            captured[0][0].replay()
            marks = []
            for graph, _, _ in captured:
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                graph.replay()
                last.record()
                marks.append((first, last))
            torch.cuda.synchronize()
            if number >= WARM_UPS:
                for taken, (first, last) in zip(times, marks, strict=True):
                    taken.append(first.elapsed_time(last))
        return [
            statistics.median(taken) / count
            for taken, (_, count, _) in zip(times, captured, strict=True)
        ]


def _capture(launches: Sequence[Launch]) -> tuple[Array, int, list[object]]:
    """A graph, how many launches it holds, and what they wrote: memory that is given back while
    capturing would be written again by the next launch, and stay in the cache.
    """
    import torch

    launches[0]()
    torch.cuda.synchronize()
    count = max(len(launches), LAUNCHES_MIN)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        written = [launches[number % len(launches)]() for number in range(count)]
    return graph, count, written


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """An update with numbers of one size and a number of drafts, at several sizes of the batch."""

    update: Update
    item_bytes: int
    drafts: int
    rows: tuple[int, ...] = ROWS

    @property
    def name(self) -> str:
        """Of its figures."""
        return f"{self.update.value}_{DTYPES[self.item_bytes]}_k{self.drafts}"

    def sizes(self, base: UpdateSizes, *, rows: int, round_bytes: int = 0) -> UpdateSizes:
        """Of a batch, with as many tables as a round needs."""
        sizes = msgspec.structs.replace(
            base, rows=rows, drafts=self.drafts, item_bytes=self.item_bytes
        )
        tables = min(TABLES_MAX, max(1, -(-round_bytes // BYTES[self.update](sizes))))
        return msgspec.structs.replace(sizes, tables=tables)


def comparisons() -> list[KernelComparison]:
    """All of them."""
    return [
        KernelComparison(update=update, item_bytes=item_bytes, drafts=drafts)
        for update, drafts, item_bytes in product(Update, DRAFTS, ITEM_BYTES)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerBench:
    """Where contenders are compared. clock: of single jobs; turns: of contenders in turn"""

    clock: DeviceClock
    turns: GraphClock
    device: str = "cuda"
    copy_bytes: int = COPY_BYTES
    round_bytes: int = ROUND_BYTES


def compared_entries(
    comparison: KernelComparison,
    contenders: Sequence[Contender],
    bench: PeerBench,
    *,
    base: UpdateSizes,
) -> list[BenchEntry]:
    """Figures of the contenders that do this update; the first of them is this project's.

    One that computes something else is not timed.
    """
    sizes = comparison.sizes(base, rows=CHECKED_ROWS)
    able = [one for one in contenders if one.update is comparison.update and one.serves(sizes)]
    errors = [relative_error(one, sizes, device=bench.device) for one in able]
    limit = TOLERANCES[comparison.item_bytes]
    entries = [
        entry_of(f"{comparison.name}_{one.name}_failed", error, "ratio", f"{_said(error)}, {limit}")
        for one, error in zip(able, errors, strict=True)
        if not error <= limit
    ]
    right = [(one, error) for one, error in zip(able, errors, strict=True) if error <= limit]
    bandwidth = copy_gb_per_second(bench.clock, device=bench.device, size_bytes=bench.copy_bytes)
    detail = f"copy of {bench.copy_bytes:,} bytes"
    entries.append(entry_of(f"{comparison.name}_copy_bandwidth", bandwidth, "GB/s", detail))
    for rows in comparison.rows:
        batch = comparison.sizes(base, rows=rows, round_bytes=bench.round_bytes)
        taken = _times(batch, comparison.update, [one for one, _ in right], bench)
        entries += _entries(comparison, batch, right, taken, bandwidth)
    return entries


def _said(error: float) -> str:
    return f"differs from the eager twin by {error:.2g}; limit"


def relative_error(one: Contender, sizes: UpdateSizes, *, device: str) -> float:
    """Of output or states, the larger: the distance from the eager twin's over their norm."""
    inputs = INPUTS[one.update](sizes, device=device)
    arrays = [_array(x) for x in inputs.arguments()]
    output = getattr(EAGER, one.update.value)(*arrays)
    states = arrays[-6][arrays[-5]]
    prepared = one.prepare(inputs)
    found = prepared.launch(0)[0]
    pairs = ((_array(found), output), (_array(prepared.states(0)), states))
    return max(
        float(np.linalg.norm((ours - theirs).ravel()) / np.linalg.norm(theirs.ravel()))
        for ours, theirs in pairs
    )


def _array(x: Array) -> np.ndarray:
    """On the host; floats as float32."""
    return (x.float() if x.is_floating_point() else x).cpu().numpy().copy()  # type: ignore[no-any-return]


def _times(
    sizes: UpdateSizes, update: Update, contenders: Sequence[Contender], bench: PeerBench
) -> list[float]:
    """Milliseconds of a launch of each."""
    inputs = INPUTS[update](sizes, device=bench.device)
    launches = [list(_launches(one, inputs)) for one in contenders]
    return bench.turns.medians_ms(launches)


def _launches(one: Contender, inputs: UpdateInputs) -> Iterator[Launch]:
    prepared = one.prepare(inputs)
    for table in range(len(inputs.tables)):
        yield lambda table=table: prepared.launch(table)  # type: ignore[misc]


def _entries(
    comparison: KernelComparison,
    sizes: UpdateSizes,
    right: Sequence[tuple[Contender, float]],
    taken: Sequence[float],
    bandwidth: float,
) -> Iterator[BenchEntry]:
    """Time and share of each, and how much longer the peers take."""
    name, size_bytes = f"{comparison.name}_r{sizes.rows}", BYTES[comparison.update](sizes)
    for (one, error), ms in zip(right, taken, strict=True):
        share = size_bytes / ms / 1e6 / bandwidth
        detail = f"{one.release}; {share:.3f} of the copy bandwidth; error {error:.1e}"
        yield entry_of(f"{name}_{one.name}_us", 1e3 * ms, "us", detail)
        if one is right[0][0]:
            moved = f"of the copy bandwidth; {size_bytes:,} bytes"
            yield entry_of(f"{name}_{one.name}_share", share, "ratio", moved)
        else:
            over = f"{one.release}: its time over that of {right[0][0].name}"
            yield entry_of(f"{name}_{one.name}_over_own", ms / taken[0], "ratio", over)
