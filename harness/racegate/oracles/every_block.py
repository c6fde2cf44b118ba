"""What holds in cache mode all, where every block keeps a state (docs/mechanism.md#every-block).

Predicates of the invariants oracle, silent in other cache modes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from racegate.history.observe import Observation
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario

Complaint = tuple[str | None, str]  # (request, what is wrong)


def i43(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Cache mode all: state columns for every full block of computed + scheduled, and for the
    running states behind them.
    """
    engine = scenario.engine
    for name, tokens, _ in seen.values["plan"]:
        end = seen.detail["computed"][name] + tokens
        least = end // engine.state_interval + 1 + engine.draft_len_max
        have = len(seen.values["state_table"][name])
        if engine.cache_mode is CacheMode.ALL and have < least:
            yield name, f"{have} state columns for {end} tokens"


def i41(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Cache mode all: no state is written to a block that is full when the step begins."""
    for row, name, table in _kept_tables(seen):
        full = table[: int(seen.values["computed"][row]) // scenario.engine.state_interval]
        written = set(seen.detail["windows"][row].tolist()) & set(full) - {0}
        if written:
            yield name, f"full state blocks {sorted(written)} are written"


def i42(seen: Observation, scenario: OwnScenario) -> Iterable[Complaint]:
    """Cache mode all: a row starts from the last full block if it begins on a boundary, else from a
    running column behind it.
    """
    interval = scenario.engine.state_interval
    for row, name, table in _kept_tables(seen):
        computed = int(seen.values["computed"][row])
        full = computed // interval
        columns = table[full - 1 : full] if computed % interval == 0 else table[full:]
        if computed > 0 and int(seen.detail["live"][row]) not in columns:
            yield name, f"starts from state block {seen.detail['live'][row]} at {computed} tokens"


def _kept_tables(seen: Observation) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Row, request and state table of each row; nothing in other cache modes."""
    names, tables = seen.detail["rows"], seen.detail.get("state_tables", ())
    for row, table in enumerate(tables):
        yield row, names[row], table
