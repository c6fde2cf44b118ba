"""Pairs of features that no run can have.

Most follow from what features need of the settings: prefixes are saved in offload mode only, so a
save never meets align mode. Others are declared one by one.
"""

from __future__ import annotations

from racegate.explore.features.settings import Feature

# (first, second) -> why no run can have both.
IMPOSSIBLE: dict[tuple[str, str], str] = {}


def clashing_setting(first: Feature, second: Feature) -> str | None:
    """A setting of which two features need different values, if there is one."""
    return next(
        (
            name
            for name, values in first.needs.items()
            if not values & second.needs.get(name, values)
        ),
        None,
    )


def why_impossible(first: Feature, second: Feature) -> str | None:
    """Why two features cannot occur in one run; None if they can."""
    name = clashing_setting(first, second)
    if name is None:
        pair = (first.name, second.name)
        return IMPOSSIBLE.get(pair, IMPOSSIBLE.get(pair[::-1]))
    return (
        f"{first.name} needs {name} = {_values(first, name)}, "
        f"{second.name} needs {_values(second, name)}"
    )


def _values(feature: Feature, name: str) -> str:
    return " or ".join(sorted(feature.needs[name]))
