"""Memory of the host that nobody has written: what it holds is chance, mostly what the same code
left there the last time. It is given values that nobody means, so that to read it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch

LARGEST = 1 << 12  # entries; larger ones are buffers, which are written as they are used
# By the bytes of a signed number: too small for a place, a length or a count.
NOBODY_MEANT = {1: -99, 2: -9_999, 4: -99_999_999, 8: -99_999_999}


def mark_unwritten() -> None:
    """From here on, new tensors and arrays of whole numbers on the host begin with `NOBODY_MEANT`.

    Not those that are pinned: the device has its own view of these.
    """
    for name in ("empty", "empty_like"):
        setattr(torch, name, _marking(getattr(torch, name), _mark_tensor))
        setattr(np, name, _marking(getattr(np, name), _mark_array))


def _marking(plain: Callable[..., Any], mark: Callable[[Any], None]) -> Callable[..., Any]:
    @wraps(plain)
    def made(*args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        if not kwargs.get("pin_memory") and kwargs.get("out") is None:
            mark(found)
        return found

    return made


def _mark_tensor(made: torch.Tensor) -> None:
    is_whole = made.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    if is_whole and made.device.type == "cpu" and made.numel() <= LARGEST:
        made.fill_(NOBODY_MEANT[made.itemsize])


def _mark_array(made: np.ndarray) -> None:
    if made.dtype.kind == "i" and made.size <= LARGEST:
        made.fill(NOBODY_MEANT[made.itemsize])
