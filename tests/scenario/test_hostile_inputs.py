"""Broken inputs of every loader: taken, or refused in words that can be printed; never an error of
another kind, never without end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile_inputs import LOADERS, Loader, feed
from racegate.jobs.pools.time_limit import limited_time
from racegate.scenario.errors import BadInputError

# Nothing here takes a tenth of it; a machine may be busy.
SECONDS_MAX = 20.0


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
# One folder for all examples: each writes its own file over the one before.
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_broken_input_is_refused_in_words(
    loader: Loader, tmp_path: Path, data: st.DataObject
) -> None:
    def pick(count: int) -> int:
        return data.draw(st.integers(0, count - 1)) if count > 1 else 0

    content = loader.make(pick)
    with limited_time(SECONDS_MAX, loader.name):
        feed(loader, content, tmp_path)


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.name)
def test_unbroken_it_is_taken(loader: Loader, tmp_path: Path) -> None:
    """Or all would be refused for one reason."""
    content = loader.make(lambda count: 0)
    if loader.name == "selection":
        with pytest.raises(BadInputError, match="selects none"):
            loader.load(content, tmp_path)
    else:
        assert feed(loader, content, tmp_path)
