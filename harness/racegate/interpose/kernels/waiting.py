"""Inside which operators the host waits for the current stream, because torch reads a result back.

`waiting.json` says it per version of torch and with which arguments. `implicit_syncs.py`, which is
in reports/interposer, measures it with torch's own CUDA kernels: on a GPU or, with their launches
skipped, on the virtual runtime.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("waiting.json")
OTHER_TORCH = "implicit waits that were measured with another torch only"

Args = tuple[Any, ...]
Named = dict[str, Any]
Applies = Callable[[Args, Named], bool]


class WaitReach(StrEnum):
    """What the host knows to be complete when an operator that waits has returned.

    BEFORE: what stood on the stream before; the operator launches more after its last wait
    ITSELF: the operator too
    """

    BEFORE = "before"
    ITSELF = "itself"


@dataclass(frozen=True, slots=True)
class ImplicitWait:
    """A wait inside an operator. applies: whether there is one with these arguments

    launches_more: whether the operator launches more after its last wait
    not_seen: how the verdict names a wait that was not measured with this torch; empty if it was
    """

    applies: Applies
    launches_more: Applies
    not_seen: str = ""

    def covers(self, args: Args, named: Named) -> WaitReach | None:
        """What the host knows when the call returns; None: it did not wait."""
        if not self.applies(args, named):
            return None
        return WaitReach.BEFORE if self.launches_more(args, named) else WaitReach.ITSELF


class Row(NamedTuple):
    """One operator in one measurement: of how many calls, how many waited, and how many of these
    launched more after their last wait. with_, without: some of either, as text
    """

    calls: int
    waited: int
    launched_after: int
    with_: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredWaits:
    """torch: its version; device: a GPU's name, or `virtual`

    waits: operators that waited in some call; silent: those that were called and never did
    """

    torch: str
    device: str
    waits: dict[str, Row]
    silent: frozenset[str]


def _always(args: Args, named: Named) -> bool:
    return True


def _never(args: Args, named: Named) -> bool:
    return False


def _equal_waits(args: Args, named: Named) -> bool:
    """Not if the shapes differ, or it is one view of the same bytes, or there are none."""
    first, second = args[0], args[1]
    if first.size() != second.size() or not first.numel():
        return False
    return bool(first.data_ptr() != second.data_ptr() or first.stride() != second.stride())


def _histc_waits(args: Args, named: Named) -> bool:
    """Only if it has to find the range itself."""
    return len(args) < 4 or bool(args[2] == args[3])


def _reads_value(*positions: int) -> Applies:
    """A value that is a tensor on the device is read as a number."""
    return lambda args, named: any(getattr(args[at], "is_cuda", False) for at in positions)


def _lacks(name: str) -> Applies:
    """It has to find out what the argument would say."""
    return lambda args, named: named.get(name) is None


def _checks_lengths(args: Args, named: Named) -> bool:
    return named.get("lengths") is not None and not named.get("unsafe")


def _has_elements(args: Args, named: Named) -> bool:
    return bool(args[0].numel())


def _checks_errors(args: Args, named: Named) -> bool:
    return bool(named.get("check_errors"))


def _is_not_square(args: Args, named: Named) -> bool:
    return _checks_errors(args, named) or bool(args[0].size(-1) != args[0].size(-2))


def _sorts_what_is_looked_for(args: Args, named: Named) -> bool:
    """A few elements are compared one by one."""
    few = int(10.0 * args[0].numel() ** 0.145)
    return bool(args[1].numel() >= few)


def _is_too_long_for_a_block(args: Args, named: Named) -> bool:
    size = args[0].size()
    return bool(size and size[args[1] if len(args) > 1 else -1] > 2048)


def _has_dim(args: Args, named: Named) -> bool:
    return len(args) > 3 and args[3] is not None


# Those that wait only with some arguments.
RULES: dict[str, Applies] = {
    "aten::equal": _equal_waits,
    "aten::histc": _histc_waits,
    "aten::masked_fill_.Tensor": _reads_value(2),
    "aten::index_fill_.int_Tensor": _reads_value(3),
    "aten::repeat_interleave.Tensor": _lacks("output_size"),
    "aten::segment_reduce": _checks_lengths,
    "aten::isin.Tensor_Tensor": _sorts_what_is_looked_for,
    "aten::mode": _is_too_long_for_a_block,
    "aten::_linalg_eigh": _has_elements,
    "aten::_linalg_svd": _has_elements,
    "aten::cholesky": _has_elements,
    "aten::linalg_ldl_factor_ex": _has_elements,
    "aten::linalg_matrix_sqrth": _has_elements,
    "aten::linalg_lu": _is_not_square,
    "aten::linalg_lu_factor_ex": _is_not_square,
    "aten::linalg_inv_ex": _checks_errors,
    "aten::linalg_cholesky_ex": _checks_errors,
    "aten::_linalg_solve_ex": _checks_errors,
}
# Those that launch more after their last wait only with some arguments.
MORE: dict[str, Applies] = {"aten::unique_consecutive": _has_dim}
# Those whose wait other parts see: a copy to or from the host, which `operands` and the runtime
# know, and a mask among indices, which `indexing` knows.
ELSEWHERE = frozenset({
    "aten::copy_", "aten::_foreach_copy_", "aten::_index_put_impl_", "aten::index.Tensor",
    "aten::where.self", "aten::_local_scalar_dense",
})  # fmt: skip


def read_table() -> tuple[MeasuredWaits, ...]:
    """All measurements, in the order in which they count for a version that has several."""
    return tuple(
        MeasuredWaits(
            torch=one["torch"],
            device=one["device"],
            waits={name: Row(*row[:3], *map(tuple, row[3:])) for name, row in one["waits"].items()},
            silent=frozenset(one["silent"]),
        )
        for one in json.loads(TABLE.read_text())
    )


class Waits:
    """What is known of a version of torch: by its own measurement, else by that of the nearest
    older version that called the operator, else of the oldest newer one. That an operator never
    waited says little if it does so only with some arguments.
    """

    def __init__(self, torch_version: str) -> None:
        own = _numbers(torch_version)
        table = read_table()
        older = [one for one in table if _numbers(one.torch) <= own]
        newer = [one for one in table if _numbers(one.torch) > own]
        older.sort(key=lambda one: _numbers(one.torch), reverse=True)
        newer.sort(key=lambda one: _numbers(one.torch))
        self._own = own
        self._table = (*older, *newer)

    def of(self, name: str) -> ImplicitWait | None:
        """None: the operator never waits."""
        if name in ELSEWHERE:
            return None
        for one in self._table:
            if name in one.silent and name not in RULES:
                return None
            if name in one.waits:
                is_own = _numbers(one.torch) == self._own
                return self._wait(name, one.waits[name], "" if is_own else OTHER_TORCH)
        return None

    def _wait(self, name: str, row: Row, not_seen: str) -> ImplicitWait | None:
        """None where it is not known by the arguments whether it waits."""
        applies = RULES.get(name, _always if row.waited == row.calls else None)
        if applies is None:
            return None
        rows = [one.waits[name] for one in self._table if name in one.waits]
        launches_more = _always if any(row.launched_after for row in rows) else _never
        return ImplicitWait(applies, MORE.get(name, launches_more), not_seen)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".")[:2])
