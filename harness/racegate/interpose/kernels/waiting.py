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
UNMEASURED = "implicit waits that nobody has measured (read off torch's sources)"

Args = tuple[Any, ...]
Named = dict[str, Any]
Applies = Callable[[Args, Named], bool]

# Nobody's samples call them with success, on any device: read off torch's sources.
READ_OFF = frozenset({"aten::_is_all_true", "aten::_is_any_true"})


class Covers(StrEnum):
    """What the host knows to be complete when an operator that waits has returned.

    BEFORE: what stood on the stream before; the operator launches more after its last wait
    ITSELF: the operator too
    """

    BEFORE = "before"
    ITSELF = "itself"


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait inside an operator. applies: whether there is one with these arguments

    not_seen: how the verdict names a wait that was not measured with this torch; empty if it was
    """

    applies: Applies
    covers: Covers
    not_seen: str = ""


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
class Measurement:
    """torch: its version; device: a GPU's name, or `virtual`

    waits: operators that waited in some call; silent: those that were called and never did
    """

    torch: str
    device: str
    waits: dict[str, Row]
    silent: frozenset[str]


def _always(args: Args, named: Named) -> bool:
    return True


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


# Those that wait only with some arguments, where that is more than having elements. (An index by a
# mask is found by `indexing`, operands on the host by `operands`.)
RULES: dict[str, Applies] = {
    "aten::equal": _equal_waits,
    "aten::histc": _histc_waits,
    "aten::masked_fill_.Tensor": _reads_value(2),
    "aten::index_fill_.int_Tensor": _reads_value(3),
    "aten::repeat_interleave.Tensor": _lacks("output_size"),
    "aten::segment_reduce": _checks_lengths,
}


def read_table() -> tuple[Measurement, ...]:
    """All measurements, in the order in which they count for a version that has several."""
    return tuple(
        Measurement(
            torch=one["torch"],
            device=one["device"],
            waits={name: Row(*row[:3], *map(tuple, row[3:])) for name, row in one["waits"].items()},
            silent=frozenset(one["silent"]),
        )
        for one in json.loads(TABLE.read_text())
    )


class Waits:
    """What is known of a version of torch: by its own measurement, else by that of the nearest
    older version that called the operator, else of the oldest newer one.
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

    def of(self, name: str) -> Wait | None:
        """None: the operator never waits."""
        if name in READ_OFF:
            return Wait(_always, Covers.ITSELF, UNMEASURED)
        for one in self._table:
            if name in one.silent:
                return None
            if name in one.waits:
                is_own = _numbers(one.torch) == self._own
                return _wait(name, one.waits[name], "" if is_own else OTHER_TORCH)
        return None


def _wait(name: str, row: Row, not_seen: str) -> Wait:
    applies = RULES.get(name, _always if row.waited == row.calls else _has_elements)
    covers = Covers.BEFORE if row.launched_after else Covers.ITSELF
    return Wait(applies, covers, not_seen)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".")[:2])
