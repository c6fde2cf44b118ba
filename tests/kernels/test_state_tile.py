"""Which tile a state update takes: what it depends on decides when a kernel is compiled again."""

from __future__ import annotations

import pytest
import torch

from racegate_kernels.launch import StateTile, state_tile


def tile(dtype: torch.dtype, *, rows: int, columns: int = 4, state_size: int = 128) -> StateTile:
    state = torch.empty(9, 2, 64, state_size, dtype=dtype, device="meta")
    return state_tile(state, torch.empty(rows, columns, dtype=torch.int32, device="meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_the_tile_of_float32_and_exact_states_does_not_depend_on_the_batch(
    dtype: torch.dtype,
) -> None:
    tiles = {tile(dtype, rows=rows) for rows in (1, 2, 7, 256)}
    assert len(tiles) == 1
    assert tiles.pop().block_p == 8


def test_a_tile_of_short_states_has_as_many_bytes_and_one_other_size_for_few_rows() -> None:
    tiles = [tile(torch.bfloat16, rows=rows) for rows in (1, 3, 4, 256)]
    assert [one.block_p for one in tiles] == [8, 8, 16, 16]
    assert len(set(tiles)) == 2


def test_registers_are_bounded_only_where_the_tile_has_the_usual_size() -> None:
    assert tile(torch.float32, rows=8).registers is not None
    assert tile(torch.float32, rows=8, state_size=4096).registers is None


def test_a_state_written_where_it_was_read_stays_in_the_cache() -> None:
    assert tile(torch.float32, rows=8, columns=1).eviction == ""
    assert tile(torch.float32, rows=8, columns=2).eviction == "evict_first"
