"""What each of the gate's scripts goes through, beside its settings; `python FILE` writes it down.

python reports/search/script_features.py reports/search/script_features.json
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from racegate.explore.features.catalogue import HAPPENINGS, features_of
from racegate.explore.features.facts import facts_of
from racegate.scenario.untrusted.files import write_json

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

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
    write_json(Path(sys.argv[1]), {name: happenings(name) for name in sorted(NAMES)})
