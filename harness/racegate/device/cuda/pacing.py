"""Pacing: when operations run on CUDA that no hold names, and how long the host may be silent."""

from __future__ import annotations

from enum import StrEnum

import msgspec

# So long may the host be silent before the watchdog opens all latches.
PATIENCE_S = 10.0


class Pacing(StrEnum):
    """EAGER: before the host goes on, as on the virtual device, so that holds decide about
        everything; what stands behind a held operation gets a latch of its own and follows in turn
    NATURAL: when the device gets to them, beside the host; only what a hold names has a latch
    """

    EAGER = "eager"
    NATURAL = "natural"


class Pace(msgspec.Struct, frozen=True):
    """patience_s: the host may be silent for so long before all latches open."""

    pacing: Pacing = Pacing.EAGER
    patience_s: float = PATIENCE_S
