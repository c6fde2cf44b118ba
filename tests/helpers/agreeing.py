"""Whether results of runs say the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.history.outcome import RunResult


def agree(results: Sequence[RunResult]) -> bool:
    """Whether results say the same, their times aside (as text, in which NaN equals NaN)."""
    plain = [
        msgspec.json.encode(
            msgspec.structs.replace(
                result, stats=msgspec.structs.replace(result.stats, seconds=0.0)
            )
        )
        for result in results
    ]
    return len(set(plain)) == 1
