"""Memory of the CUDA driver: pieces that are handed out from the front and taken back at once."""

from __future__ import annotations

import torch

from racegate.device.cuda.torch import ALIGNMENT_BYTES, PIECE_BYTES, _Arena


def arena() -> tuple[_Arena, list[int]]:
    """An arena on CPU memory, and the sizes of its pieces."""
    sizes: list[int] = []

    def allocate(size: int) -> torch.Tensor:
        sizes.append(size)
        return torch.empty(size, dtype=torch.uint8)

    return _Arena(allocate), sizes


def test_what_is_handed_out_is_aligned_and_does_not_overlap() -> None:
    memory, sizes = arena()
    parts = [memory.take(size) for size in (1, 0, 300, ALIGNMENT_BYTES)]
    assert [len(part) for part in parts] == [1, 0, 300, ALIGNMENT_BYTES]
    first = parts[0].data_ptr()
    places = [(part.data_ptr() - first) // ALIGNMENT_BYTES for part in (parts[0], *parts[2:])]
    assert places == [0, 2, 4]
    assert sizes == [PIECE_BYTES]


def test_after_a_reset_the_same_pieces_serve_again() -> None:
    memory, sizes = arena()
    first = memory.take(8)
    memory.take(PIECE_BYTES)
    large = memory.take(2 * PIECE_BYTES)
    assert len(large) == 2 * PIECE_BYTES
    memory.reset()
    assert memory.take(8).data_ptr() == first.data_ptr()
    memory.take(PIECE_BYTES)
    memory.take(2 * PIECE_BYTES)
    assert sizes == [PIECE_BYTES, PIECE_BYTES, 2 * PIECE_BYTES]
