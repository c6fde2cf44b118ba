"""Worker processes whose parent was killed: nothing else tells them to end."""

from __future__ import annotations

import multiprocessing


def is_orphan() -> bool:
    """Whether this is a worker, and the process that started it is gone."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
