"""Litmus programs with their allowed outcomes: what CUDA's ordering rules permit, no more and no
less.

The virtual device must produce exactly the allowed set over all its schedules; a GPU must stay
inside it.
"""

from __future__ import annotations

from litmus_copies import DEVICE_TO_HOST, HOST_TO_DEVICE
from litmus_order import EVENTS, STREAM_ORDER
from litmus_signals import FLAGS, MEMORY, QUERIES

ALL = (
    *STREAM_ORDER,
    *EVENTS,
    *QUERIES,
    *HOST_TO_DEVICE,
    *DEVICE_TO_HOST,
    *MEMORY,
    *FLAGS,
)
