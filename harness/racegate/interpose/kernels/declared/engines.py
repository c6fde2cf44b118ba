"""What the compiled copies of vLLM and SGLang move, by what their sources say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from racegate.interpose.kernels.declared.copies import CopyOperator, CopyOperators, Moves

Tensor = Any


def swap_blocks(
    src: Tensor,  # [blocks, ...]
    dst: Tensor,
    block_mapping: Tensor,  # [copies, 2] of the host: block of the source, block of the target
    block_size_in_bytes: int = 0,  # 0: what lies between two blocks of the source
) -> Moves:
    """vLLM's `swap_blocks`: a copy for each pair of blocks."""
    size = block_size_in_bytes or src.element_size() * src.stride(0)
    for source, target in block_mapping.tolist():
        yield dst.data_ptr() + target * size, src.data_ptr() + source * size, size


def swap_blocks_batch(
    src_ptrs: Tensor,  # [copies] of the host, like the others
    dst_ptrs: Tensor,
    sizes: Tensor,
    is_src_access_order_any: bool = False,  # noqa: FBT001, FBT002
) -> Moves:
    """vLLM's `swap_blocks_batch`: copies between addresses."""
    return zip(dst_ptrs.tolist(), src_ptrs.tolist(), sizes.tolist(), strict=True)


def _items(source: int, target: int, indices: tuple[Tensor, Tensor], size: int) -> Iterator[Any]:
    for at, to in zip(*(one.tolist() for one in indices), strict=True):
        yield target + to * size, source + at * size, size


def per_layer(
    src_k: Tensor,
    dst_k: Tensor,
    src_v: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,  # [items]
    dst_indices: Tensor,
    item_size: int,  # bytes
    **_: int,
) -> Moves:
    """SGLang's `transfer_kv_per_layer`: items of the keys, and of the values, of a layer."""
    for source, target in ((src_k, dst_k), (src_v, dst_v)):
        yield from _items(
            source.data_ptr(), target.data_ptr(), (src_indices, dst_indices), item_size
        )


def per_layer_mla(
    src: Tensor, dst: Tensor, src_indices: Tensor, dst_indices: Tensor, item_size: int, **_: int
) -> Moves:
    """SGLang's `transfer_kv_per_layer_mla`: likewise, of one buffer."""
    return _items(src.data_ptr(), dst.data_ptr(), (src_indices, dst_indices), item_size)


def all_layer(
    src_k_layers: Tensor,  # [layers] addresses, like the others
    dst_k_layers: Tensor,
    src_v_layers: Tensor,
    dst_v_layers: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    num_layers: int,
    **_: int,
) -> Moves:
    """SGLang's `transfer_kv_all_layer`: items of all layers, whose addresses lie in tensors."""
    for layers in ((src_k_layers, dst_k_layers), (src_v_layers, dst_v_layers)):
        yield from all_layer_mla(*layers, src_indices, dst_indices, item_size, num_layers)


def all_layer_mla(
    src_layers: Tensor,
    dst_layers: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    num_layers: int,
    **_: int,
) -> Moves:
    """SGLang's `transfer_kv_all_layer_mla`: likewise, of one buffer."""
    for at in range(num_layers):
        source, target = int(src_layers[at]), int(dst_layers[at])
        yield from _items(source, target, (src_indices, dst_indices), item_size)


def per_layer_pf_lf(
    src_k: Tensor,
    dst_k: Tensor,
    src_v: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,  # bytes of one item of all layers
    **_: int,
) -> Moves:
    """SGLang's `transfer_kv_per_layer_pf_lf`: a layer's part of items that lie item by item."""
    for source, target in ((src_k, dst_k), (src_v, dst_v)):
        first = source.data_ptr() + layer_id * item_size
        for at, to in zip(src_indices.tolist(), dst_indices.tolist(), strict=True):
            yield target.data_ptr() + to * item_size, first + at * src_layout_dim, item_size


_KV = "Tensor src_k{0}, Tensor dst_k{0}, Tensor src_v{0}, Tensor dst_v{0}, "
_ONE = "Tensor src{0}, Tensor dst{0}, "
_INDICES = "Tensor src_indices, Tensor dst_indices, "
_LAYERS, _GRID = "int num_layers, ", "int block_quota, int num_warps_per_block"
_SGLANG: tuple[tuple[str, str, Callable[..., Moves]], ...] = (
    ("per_layer", _KV.format("") + _INDICES + "int item_size, ", per_layer),
    ("per_layer_mla", _ONE.format("") + _INDICES + "int item_size, ", per_layer_mla),
    (
        "per_layer_pf_lf",
        _KV.format("") + _INDICES + "int layer_id, int item_size, int src_layout_dim, ",
        per_layer_pf_lf,
    ),
    ("all_layer", _KV.format("_layers") + _INDICES + "int item_size, " + _LAYERS, all_layer),
    (
        "all_layer_mla",
        _ONE.format("_layers") + _INDICES + "int item_size, " + _LAYERS,
        all_layer_mla,
    ),
)
SGLANG = tuple(
    CopyOperator(
        schema=f"sgl_kernel::transfer_kv_{name}({arguments}{_GRID}) -> ()",
        moves=moves,
        reads=("src_indices", "dst_indices"),
    )
    for name, arguments, moves in _SGLANG
)


def declare_vllm(declared: CopyOperators, operators: ModuleType) -> None:
    """Where vLLM's compiled operators are not installed. operators: its `_custom_ops`"""
    has_size = "block_size_in_bytes" in inspect.signature(operators.swap_blocks).parameters
    size = "int block_size_in_bytes, " if has_size else ""
    declared.add_missing(
        CopyOperator(
            schema="_C_cache_ops::swap_blocks"
            f"(Tensor src, Tensor(a!) dst, {size}Tensor block_mapping) -> ()",
            moves=swap_blocks,
            reads=("block_mapping",),
        )
    )
    declared.add_missing(
        CopyOperator(
            schema="_C_cache_ops::swap_blocks_batch(Tensor src_ptrs, Tensor dst_ptrs, "
            "Tensor sizes, bool is_src_access_order_any=False) -> ()",
            moves=swap_blocks_batch,
            reads=("src_ptrs", "dst_ptrs", "sizes"),
            any_order="is_src_access_order_any",
        )
    )


def declare_sglang(declared: CopyOperators, _package: ModuleType) -> None:
    """SGLang's are kernels, compiled or not."""
    for operator in SGLANG:
        declared.add(operator)
