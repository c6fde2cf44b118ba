"""What is told of values that are not true by themselves."""

from __future__ import annotations

import pytest

from bare_session import engine_session
from racegate.targets.vllm.inside.watch import RunnerWatch, find_wrong


def watch(used: int, *, length: int, block: int) -> RunnerWatch:
    """One request in one row, whose last step accepted two tokens; four are run now."""
    found = RunnerWatch(engine_session())
    found.state_block = block
    found.accepted[1] = {"A": 2}
    values: dict[str, object] = {
        "rows": ["A"], "drafted": [True], "accepted": [used], "seq_lens": [length],
        "query_start": [0, 4],
    }  # fmt: skip
    found.seen.append((2, "metadata", values))
    return found


@pytest.mark.parametrize(
    ("used", "length", "block", "is_wrong"),
    [
        (2, 20, 80, False),
        (3, 20, 80, True),
        (1, 20, 80, True),
        (1, 81, 80, False),  # this step's tokens go into another block
        (1, 87, 80, False),  # those of the step before may have
        (1, 88, 80, True),
        (3, 81, 80, True),
        (1, 81, 0, True),
    ],
)
def test_a_count_is_the_accepted_one_or_that_of_a_new_block(
    used: int, length: int, block: int, *, is_wrong: bool
) -> None:
    """A state that is copied into another block stands in its first slot."""
    assert bool(find_wrong(watch(used, length=length, block=block))) is is_wrong
