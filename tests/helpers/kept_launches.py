"""Launches of kernels, as a memo keeps them, without an interpreter."""

from __future__ import annotations

import numpy as np

from racegate.interpose.device.kept import peek
from racegate.interpose.kernels.kept.calls import Call
from racegate.interpose.kernels.kept.memo import Memo
from racegate.order.ranges import Ranges

CALL = Call("module:kernel|digest|(1,)|4", ())


def span(array: np.ndarray) -> Ranges:
    low = array.ctypes.data
    return ((low, low + array.nbytes),)


def on(*arrays: np.ndarray) -> Call:
    """A call that is given these arrays."""
    return Call("module:kernel|digest|(1,)", tuple(r for array in arrays for r in span(array)))


def add_kept(memo: Memo, source: np.ndarray, target: np.ndarray, call: Call = CALL) -> None:
    """target += source, as a kernel that is kept."""
    memo.begin()
    memo.note_store(lambda: span(target))
    target += source
    memo.end(call, span(source), (*span(source), *span(target)), span(target))


def add_vouched(memo: Memo, source: np.ndarray, target: np.ndarray, call: Call) -> None:
    """As `add_kept`, and judged without a finding."""
    memo.begin()
    memo.note_store(lambda: span(target))
    target[:] = source
    effect = memo.end(call, span(source), span(source), span(target))
    assert effect is not None
    memo.vouch(call, effect)


def is_mapped(low: int, high: int) -> bool:
    """Whether there is memory, as of a device that has all of the process."""
    return peek(low, high) is not None


def opened() -> Memo:
    memo = Memo()
    memo.keep()
    return memo
