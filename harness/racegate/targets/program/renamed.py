"""A finding as if its script had another name, so that places of two scripts are the same."""

from __future__ import annotations

import msgspec

from racegate.history.finding import Finding, Side
from racegate.order.findings import race_signature


def as_of_script(finding: Finding, before: str, after: str) -> Finding:
    """As if it had been found in a script of another name."""
    race = finding.race
    if race is None or before == after:
        return finding
    first, second = (_of_script(side, before, after) for side in (race.first, race.second))
    signature = race_signature(first, second)
    race = msgspec.structs.replace(race, first=first, second=second, signature=signature)
    return msgspec.structs.replace(finding, race=race, signature=signature)


def _of_script(side: Side, before: str, after: str) -> Side:
    label = side.label.replace(f"@{before}:", f"@{after}:")
    return msgspec.structs.replace(side, label=label)
