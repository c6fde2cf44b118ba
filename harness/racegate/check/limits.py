"""Limits of one run of the engine on the virtual device. A defect may take what was never written
for a length, and ask for memory by the gigabyte: that is a finding, and must not take the machine.

The kernel counts, so that a run that stays within its limit costs two system calls.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

try:
    import resource
except ImportError:  # no such thing on this system, and so no limit
    resource = None  # type: ignore[assignment]

# More than what was there before: the buffers of a scenario, its snapshots and its trace are less.
RUN_BYTES_MAX = 8 << 30
_STATM = Path("/proc/self/statm")
_DATA = 5  # its field that counts what RLIMIT_DATA limits, in pages


class RunLimitError(Exception):
    """An engine asked for more memory in one piece than a whole run may take."""


@contextmanager
def limited_memory(bytes_max: int = RUN_BYTES_MAX) -> Iterator[None]:
    """Inside, this process cannot get so much more memory. Where the system cannot say how much it
    has, there is no limit.

    Raises RunLimitError for an array that is larger than that, MemoryError for what sums up.
    """
    if resource is None or not _STATM.exists():
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with open(_STATM, "rb", buffering=0) as statm:
        used = int(statm.read().split()[_DATA]) * os.sysconf("SC_PAGE_SIZE")
    limits = [limit for limit in (before, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([used + bytes_max, *limits]), hard))
    try:
        yield
    except MemoryError as error:
        asked = _bytes_asked(error)
        if asked < bytes_max:
            raise
        raise RunLimitError(
            f"{error}; a whole run may take {bytes_max / 2**30:g} GiB: a length was taken from "
            "memory that nobody had written, or is out of range"
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _bytes_asked(error: MemoryError) -> int:
    """How much NumPy was asked for; 0 if it was not NumPy. It says so in fields of its error."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    return 0 if shape is None or dtype is None else math.prod(shape) * np.dtype(dtype).itemsize
