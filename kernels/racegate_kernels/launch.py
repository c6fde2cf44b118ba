"""What the Triton launchers share: block sizes and the layouts that kernels take for granted.

Sizes that change from step to step go into the grid, or into arguments that Triton does not
specialise (`do_not_specialize`): a batch of another size must not compile in the middle of a run.
"""

from __future__ import annotations

from dataclasses import dataclass

from racegate_kernels.numerics import Array

# Elements of a block a program holds at once: 32 registers per thread at 4 warps.
BLOCK_ELEMENTS = 4096
# Of a state: 32 registers per thread. Many small programs hide each other's waits better
# than fewer that keep more (reports/gpu).
TILE_ELEMENTS, TILE_WARPS = 1024, 1


def is_exact_tensor(x: Array) -> bool:
    """Whether a torch tensor holds exact quantities (uint32 bits in int32) rather than floats."""
    return not x.is_floating_point()


def cdiv(size: int, block: int) -> int:
    """Blocks that a size takes. (Triton's own inspects its arguments, microseconds a call.)"""
    return -(-size // block)


def power_of_two(size: int) -> int:
    """The least power of two that is not below a size of at least 1."""
    return 1 << (size - 1).bit_length()


def block_of(size: int, *, most: int = BLOCK_ELEMENTS) -> int:
    """The block length, a power of two, for a dimension of this size."""
    return min(power_of_two(max(size, 1)), most)


def flat_rows(x: Array) -> Array:
    """[..., D] as [rows, D]. (A view that changes nothing takes as long to make as another.)"""
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])


def output_of(x: Array, shape: tuple[int, ...], *, rows: int) -> Array:
    """Memory for an output of which each row writes its tokens, and the last row all behind them.

    Without a row there is no program to write it.
    """
    return x.new_empty(shape) if rows > 0 else x.new_zeros(shape)


def assert_dense(*tensors: Array) -> None:
    """The kernels address these by shape alone."""
    for x in tensors:
        assert x.is_contiguous(), f"{tuple(x.shape)=} {x.stride()=}"


def assert_row_major(*tensors: Array) -> None:
    """The kernels take the row stride of these; the last dimension must be contiguous."""
    for x in tensors:
        dense = x.stride(-1) == 1 or x.shape[-1] == 1 or x.numel() == 0
        assert dense, f"{tuple(x.shape)=} {x.stride()=}"


@dataclass(frozen=True, slots=True)
class StateTile:
    """What a program of a state update holds in registers: rows of P, the whole of N."""

    block_p: int
    block_n: int
    warps: int


def state_tile(head_size: int, state_size: int) -> StateTile:
    """The tile of a head's state [P, N] that one program updates."""
    block_n = power_of_two(state_size)
    block_p = block_of(head_size, most=max(1, TILE_ELEMENTS // block_n))
    return StateTile(block_p, block_n, TILE_WARPS)
