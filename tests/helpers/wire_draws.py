"""Strategies for the messages of the adapter protocol."""

from __future__ import annotations

from hypothesis import strategies as st

from racegate.history.observe import Boundary
from racegate.history.trace import HoldOutcome
from racegate.targets.adapters.wire import (
    AccessEntry,
    Answer,
    BufferLine,
    DropEdge,
    HistoryLine,
    HostLine,
    ObservationLine,
    OpLine,
    OwnerLine,
    PlainAnswer,
    Plant,
    QueryLine,
    RanAnswer,
    RecordLine,
    RefusedAnswer,
    StaleValue,
    StopKind,
    StoppedAnswer,
    WaitLine,
    WrongRow,
)

# Few, so that lines often speak of the same things; some of which do not exist.
NAMES = st.sampled_from(["x", "y", "copy", "compute", "host", "landed", "d2h:x@1", "a b"])
SMALL = st.integers(-1, 5)
OWNERS = st.tuples(st.sampled_from(["A", "B"]), SMALL)
TOKENS = st.lists(st.integers(0, 96), max_size=4).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def accesses() -> st.SearchStrategy[tuple[AccessEntry, ...]]:
    rows = st.lists(SMALL | st.tuples(SMALL, SMALL), max_size=3).map(tuple)
    entry = st.builds(AccessEntry, buffer=NAMES, rows=st.none() | rows, write=st.booleans())
    return st.lists(entry, max_size=3).map(tuple)


def clocks() -> st.SearchStrategy[dict[str, int] | None]:
    return st.none() | st.dictionaries(NAMES, SMALL, max_size=2)


def history_lines() -> st.SearchStrategy[HistoryLine]:
    """Lines as an engine may write them, sense or nonsense."""
    return st.one_of(
        st.builds(BufferLine, name=NAMES, rows=SMALL, storage=st.none() | NAMES),
        st.builds(OpLine, name=NAMES, lane=NAMES, accesses=accesses(), clock=clocks()),
        st.builds(HostLine, name=NAMES, accesses=accesses(), clock=clocks()),
        st.builds(RecordLine, event=NAMES, lane=NAMES),
        st.builds(WaitLine, edge=NAMES, event=NAMES, lane=NAMES, dropped=st.booleans()),
        st.builds(QueryLine, name=NAMES, event=NAMES),
        st.builds(
            OwnerLine,
            name=NAMES,
            buffer=NAMES,
            row=SMALL,
            meant=OWNERS,
            found=st.none() | OWNERS,
        ),
        st.builds(
            ObservationLine,
            step=SMALL,
            boundary=st.sampled_from(Boundary),
            values=st.dictionaries(st.text(max_size=4), JSON, max_size=3),
        ),
    )


def answers() -> st.SearchStrategy[Answer]:
    texts = st.text(max_size=9)
    outcome = st.builds(HoldOutcome, hold=texts, matched=SMALL, realised=SMALL)
    return st.one_of(
        st.builds(
            RanAnswer,
            to=SMALL,
            delivered=st.dictionaries(NAMES, TOKENS, max_size=2),
            finished=st.dictionaries(NAMES, NAMES, max_size=2),
            steps=SMALL,
            counters=st.dictionaries(NAMES, SMALL, max_size=2),
            holds=st.lists(outcome, max_size=2).map(tuple),
            unmet_events=st.lists(texts, max_size=2).map(tuple),
        ),
        st.builds(
            StoppedAnswer, to=SMALL, kind=st.sampled_from(StopKind), error=texts, message=texts
        ),
        st.builds(PlainAnswer, to=SMALL, tokens=st.dictionaries(NAMES, TOKENS, max_size=2)),
        st.builds(RefusedAnswer, to=SMALL, reason=texts),
    )


def plants() -> st.SearchStrategy[Plant]:
    edges = st.text(min_size=1, max_size=9)
    return st.one_of(st.builds(DropEdge, edge=edges), st.just(WrongRow()), st.just(StaleValue()))
