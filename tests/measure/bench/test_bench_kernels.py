"""The kernel benchmarks measure what they say, at small sizes and on the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernel_twins import DEVICE
from racegate.measure.bench.kernels import (
    GATED_DELTA,
    MAMBA2,
    UpdateSizes,
    gated_delta_bytes,
    gated_delta_job,
    kernel_entries,
    mamba2_bytes,
    mamba2_job,
)
from racegate_kernels.backend import EAGER, triton_backend

SMALL = UpdateSizes(rows=3, drafts=2, heads=2, head_size=4, state_size=8)


class OnceClock:
    """Runs a job once and pretends that each takes a millisecond."""

    def __init__(self) -> None:
        self.jobs = 0

    def median_ms(self, job: Callable[[], object]) -> float:
        job()
        self.jobs += 1
        return 1.0


def test_bytes_are_one_read_and_a_write_per_token() -> None:
    assert SMALL.state_bytes == 4 * 2 * 4 * 8
    assert SMALL.states_moved_bytes == 3 * (1 + 3) * SMALL.state_bytes
    assert MAMBA2.states_moved_bytes == 256 * 5 * 4 * 128 * 64 * 128
    assert GATED_DELTA.states_moved_bytes == 256 * 5 * 4 * 32 * 128 * 128


def test_bytes_of_vectors_are_those_of_the_arguments() -> None:
    tokens, heads = 3 * 3, 2
    mamba2 = 4 * tokens * (heads * 4 + 8 + 8 + heads + heads * 4)
    assert mamba2_bytes(SMALL) == SMALL.states_moved_bytes + mamba2
    gated_delta = 4 * tokens * heads * (8 + 8 + 4 + 1 + 1 + 4)
    assert gated_delta_bytes(SMALL) == SMALL.states_moved_bytes + gated_delta


def test_every_figure_stands_beside_its_limit() -> None:
    clock = OnceClock()
    entries = kernel_entries(
        triton_backend(),
        clock,
        device=DEVICE,
        copy_bytes=1 << 12,
        mamba2=SMALL,
        gated_delta=SMALL,
        count_rows=(5, 70),
    )
    values = {entry.name: entry.value for entry in entries}
    assert clock.jobs == 3 + 2 * 3
    assert values["copy_bandwidth"] == pytest.approx(2 * (1 << 12) / 1e6)
    assert values["mamba2_update_bandwidth"] == pytest.approx(mamba2_bytes(SMALL) / 1e6)
    share = gated_delta_bytes(SMALL) / (2 * (1 << 12))
    assert values["gated_delta_update_share"] == pytest.approx(share)
    assert values["accepted_count_70_over_cat_argmax"] == 1.0
    assert all(entry.detail for entry in entries)


@pytest.mark.parametrize("make", [mamba2_job, gated_delta_job])
def test_the_jobs_do_the_whole_update(make: Callable[..., Callable[[], object]]) -> None:
    """The launch gives what the eager twin gives for the same numbers, states included."""
    seen: list[tuple[np.ndarray, ...]] = []

    class Both:
        """Runs the eager twin on copies of what the Triton kernel gets."""

        def __getattr__(self, name: str) -> Callable[..., object]:
            def run(*tensors: object) -> object:
                arrays = [tensor.cpu().numpy().copy() for tensor in tensors]  # type: ignore[attr-defined]
                expected = getattr(EAGER, name)(*arrays)
                found = getattr(triton_backend(), name)(*tensors)
                seen.append((found.cpu().numpy(), expected))
                seen.append((tensors[-6].cpu().numpy(), arrays[-6]))  # type: ignore[attr-defined]
                return found

            return run

    make(Both(), SMALL, device=DEVICE)()
    for found, expected in seen:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert len(seen) == 2 and np.abs(seen[0][0]).max() > 0
