"""Pacing: when operations run on CUDA that no hold names."""

from __future__ import annotations

from enum import StrEnum

# So long may the host be silent before the watchdog opens all latches.
PATIENCE_S = 10.0


class Pacing(StrEnum):
    """EAGER: before the host goes on, as on the virtual device, so that holds decide about
        everything; what stands behind a held operation gets a latch of its own and follows in turn
    NATURAL: when the device gets to them, beside the host; only what a hold names has a latch
    """

    EAGER = "eager"
    NATURAL = "natural"
