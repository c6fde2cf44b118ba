"""Whether programs can run on the virtual CUDA device here, for tests that need it."""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import BadInput

LITMUS = Path(__file__).parents[1] / "interpose" / "litmus"


def why_not() -> str:
    """What is missing, empty if nothing is."""
    try:
        find_toolkit()
    except BadInput as error:
        return str(error)
    return ""


def why_no_litmus() -> str:
    """Of the litmus programs, which are not part of every checkout."""
    return why_not() if LITMUS.is_dir() else "tests/interpose/litmus is not in this checkout"


needs_cuda_torch = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")
needs_litmus = pytest.mark.skipif(bool(why_no_litmus()), reason=why_no_litmus() or "it can run")
