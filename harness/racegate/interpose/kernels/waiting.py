"""Inside which operators the host waits for the current stream, because torch reads a result back.

`waiting.json` says it per version of torch, measured by `reports/interposer/waiting_table.py` with
torch's own CUDA kernels on the virtual runtime: of how many calls, how many waited.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("waiting.json")

# Their kernels need libraries that the virtual runtime does not carry, or torch's tests do not call
# them: read off torch's sources, or (the last four) seen on a GPU.
UNMEASURED = frozenset({
    "aten::nonzero.out", "aten::masked_select.out", "aten::_unique2", "aten::_unique",
    "aten::unique_consecutive", "aten::unique_dim", "aten::unique_dim_consecutive",
    "aten::repeat_interleave.Tensor", "aten::_is_all_true", "aten::_is_any_true",
    "aten::_ctc_loss_backward", "aten::linalg_eig", "aten::linalg_ldl_solve",
    "aten::linalg_lstsq.out",
})  # fmt: skip


# Seen on a GPU with torch 2.11; from 2.14 on, the first version that was measured, it does not.
SEEN_BEFORE_2_14 = frozenset({"aten::normal.Tensor_Tensor"})


def _equal_waits(args: tuple[Any, ...]) -> bool:
    """Not if the shapes differ, or it is one view of the same bytes, or there are none."""
    first, second = args[0], args[1]
    if first.size() != second.size() or not first.numel():
        return False
    return bool(first.data_ptr() != second.data_ptr() or first.stride() != second.stride())


def _histc_waits(args: tuple[Any, ...]) -> bool:
    """Only if it has to find the range itself."""
    return len(args) < 4 or bool(args[2] == args[3])


def _reads_value(position: int) -> Callable[[tuple[Any, ...]], bool]:
    """A value that is a tensor on the device is read as a number."""
    return lambda args: bool(getattr(args[position], "is_cuda", False))


# Those that wait only for some arguments. (An index by a mask is found by `indexing`.)
RULES: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "aten::equal": _equal_waits,
    "aten::histc": _histc_waits,
    "aten::masked_fill_.Tensor": _reads_value(2),
    "aten::index_fill_.int_Tensor": _reads_value(3),
}


def read_table() -> dict[str, dict[str, tuple[int, int]]]:
    """By version of torch: (calls that waited, calls) of each operator that ever waited."""
    table = json.loads(TABLE.read_text())
    return {
        version: {name: (waited, calls) for name, (waited, calls) in row["waits"].items()}
        for version, row in table.items()
    }


def waiting_operators(torch_version: str) -> frozenset[str]:
    """Operators that wait at every call: of the newest version of the table that is not newer than
    this one, else of the oldest.
    """
    table = read_table()
    versions = sorted(table, key=_numbers)
    known = [version for version in versions if _numbers(version) <= _numbers(torch_version)]
    row = table[known[-1] if known else versions[0]]
    always = {name for name, (waited, calls) in row.items() if waited == calls}
    return UNMEASURED | always | (frozenset() if known else SEEN_BEFORE_2_14)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".")[:2])
