"""What each of the gate's scripts goes through, beside its settings; `python FILE` writes it down.

python tests/helpers/script_features.py tests/measure/evaluation/script_features.json
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import msgspec

from racegate.explore.features.catalogue import HAPPENINGS, features_of
from racegate.explore.features.facts import facts_of
from support import NAMES, checker

HAPPENING_NAMES = frozenset(feature.name for feature in HAPPENINGS)


@cache
def script_features(name: str) -> frozenset[str]:
    """All features of one eager run."""
    judge = checker(name)
    return features_of(facts_of(judge.scenario, judge.execute()))


def happenings(name: str) -> list[str]:
    """Those that are no settings, in the order of their names."""
    return sorted(script_features(name) & HAPPENING_NAMES)


if __name__ == "__main__":
    found = msgspec.json.encode({name: happenings(name) for name in sorted(NAMES)})
    Path(sys.argv[1]).write_bytes(msgspec.json.format(found, indent=1) + b"\n")
