"""What the Triton launchers share: block sizes and the layouts that kernels take for granted.

Sizes that change from step to step go into the grid, or into arguments that Triton does not
specialise (`do_not_specialize`): a batch of another size must not compile in the middle of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from racegate_kernels.numerics import Array

# Elements of a block a program holds at once: 32 registers per thread at 4 warps.
BLOCK_ELEMENTS = 4096
# Of a state, for one warp. Many small programs hide each other's waits better than fewer that keep
# more (reports/gpu); of short numbers a program needs more to have as many bytes on their way.
TILE_BYTES, TILE_WARPS = 4096, 1
# Most registers of a thread for a tile of that size: with several columns, with one, and of short
# numbers. The compiler would take more, and then fewer programs wait for memory side by side.
TILE_REGISTERS, SINGLE_REGISTERS, SHORT_REGISTERS = 112, 96, 128
# Programs of so few rows are all there at once: what counts is how soon each is done.
SHORT_TILE_ROWS_MIN = 4


def is_exact_tensor(x: Array) -> bool:
    """Whether a torch tensor holds exact quantities (uint32 bits in int32) rather than floats."""
    return not x.is_floating_point()


@cache
def early_start(device: Any) -> dict[str, bool]:
    """Options of a launch whose programs may stand ready while the kernel before still runs, on
    devices that know this. They begin with `rows.begin`.
    """
    if device.type == "cuda":
        import torch

        early = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)
    else:
        early = device.type == "meta"  # which tests compile for
    return {"EARLY": True, "launch_pdl": True} if early else {"EARLY": False}


def cdiv(size: int, block: int) -> int:
    """Blocks that a size takes. (Triton's own inspects its arguments, microseconds a call.)"""
    return -(-size // block)


def power_of_two(size: int) -> int:
    """The least power of two that is not below a size of at least 1."""
    return 1 << (size - 1).bit_length()


def block_of(size: int, *, most: int = BLOCK_ELEMENTS) -> int:
    """The block length, a power of two, for a dimension of this size."""
    return min(power_of_two(max(size, 1)), most)


def head_blocks(heads: int, head_size: int) -> tuple[int, int]:
    """How many heads one program takes, and the elements of a head, both padded."""
    block_p = power_of_two(max(head_size, 2))
    return block_of(heads, most=max(1, 1024 // block_p)), block_p


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
    """What a program of a state update holds in registers: rows of P, the whole of N.

    eviction: what becomes of a cached state that was read
    registers: most of a thread; None: as many as the compiler wants
    """

    block_p: int
    block_n: int
    warps: int
    eviction: str
    registers: int | None


def state_tile(state: Array, table: Array) -> StateTile:
    """The tile of a head's state that one program updates.

    state: [B, H, P, N]; table: [R, 1 + K]
    The tile of float32 depends on the model alone. That of shorter numbers has two sizes, so a
    batch may compile the second.
    """
    head_size, state_size, item_bytes = *state.shape[2:], state.element_size()
    is_short, is_single = item_bytes < 4, table.shape[1] == 1
    is_early = is_short and len(table) < SHORT_TILE_ROWS_MIN
    elements = TILE_BYTES // (item_bytes if is_short and not is_early else 4)
    block_n = power_of_two(state_size)
    block_p = block_of(head_size, most=max(1, elements // block_n))
    registers = SINGLE_REGISTERS if is_single else TILE_REGISTERS
    is_bounded = block_p * block_n <= elements and not is_early
    return StateTile(
        block_p=block_p,
        block_n=block_n,
        warps=TILE_WARPS,
        # With one column a state is written where it was read: it is wanted until then.
        eviction="" if is_single else "evict_first",
        registers=(SHORT_REGISTERS if is_short else registers) if is_bounded else None,
    )
