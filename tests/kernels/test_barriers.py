"""Every barrier of the own kernels is necessary: without it threads touch what others touch."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import racegate_kernels
from judged_launches import watched_interpreter
from kernel_batches import BLOCKS, decode_rows
from kernel_twins import int32, run_triton, sliced, values

SOURCES = Path(racegate_kernels.__file__).parent
ROWS, CHANNELS, WIDTH = 300, 130, 4
RNG = np.random.default_rng(0)
DECODING = decode_rows([4, 1, 2], [1, 2, 3], columns=4)
SHIFTED = np.roll(np.arange(ROWS, dtype=np.int32), 7)
COUNTS = [RNG.integers(0, 9, ROWS).astype(np.int32) for _ in range(5)]
WINDOW = values(RNG, (3, CHANNELS, WIDTH + 2), np.uint32)


# By the file of the barrier a call that needs it.
CALLS: dict[str, tuple[Any, ...]] = {
    "count_correction": ("correct_computed", *COUNTS[:2], SHIFTED, *COUNTS[2:]),
    "conv_update": (
        "conv_update",
        sliced(values(RNG, (DECODING.tokens, CHANNELS), np.uint32)),
        values(RNG, (CHANNELS, WIDTH), np.uint32),
        values(RNG, (BLOCKS, CHANNELS, WIDTH + 2), np.uint32),
        DECODING.table[:, 0],
        *DECODING.counts,
    ),
    "state_migration": ("migrate_windows", WINDOW, int32(1), int32(1), int32(1)),
}


@pytest.mark.skipif(
    torch.cuda.is_available(),
    reason="kernels are looked into by the interpreter, and with a GPU they are compiled",
)
@pytest.mark.parametrize("file", CALLS)
def test_without_its_barrier_a_kernel_has_a_race(file: str) -> None:
    options = {"width": WIDTH} if file == "state_migration" else {}
    with watched_interpreter().without_barriers() as report:
        run_triton(*CALLS[file], **options)
    assert report.launches == 1
    assert report.found


def test_no_other_kernel_has_one() -> None:
    found = Counter(
        path.stem
        for path in SOURCES.glob("*.py")
        for _ in re.findall(r"tl\.debug_barrier\(\)", path.read_text())
    )
    assert found == dict.fromkeys(CALLS, 1)
