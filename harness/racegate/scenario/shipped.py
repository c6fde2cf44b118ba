"""The scripts and witnesses that come with racegate: package data of a wheel, and in a checkout the
folder that they are made from.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parents[1]


def shipped_scripts() -> Path:
    """The folder of the scripts; their witnesses lie in `witnesses` below it."""
    installed = _PACKAGE / "scripts"
    return installed if installed.is_dir() else _CHECKOUT / "scenarios"
