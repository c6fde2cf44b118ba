"""Paths of edges: one is shown exactly if the pair is ordered, and it says by what."""

from __future__ import annotations

import pytest
from hypothesis import given

from racegate.history.trace import HOST
from racegate.oracles.paths import EdgeGraph, ExplainError, PathStep
from stories import S0, S1, Story, read, stories, write


@given(stories)
def test_there_is_a_path_exactly_if_one_comes_before_the_other(story: Story) -> None:
    graph = EdgeGraph(story.trace())
    for first in story.places:
        for second in story.places:
            if first < second:
                assert (graph.path(first, second) is not None) == story.is_before(first, second)


def test_a_path_names_every_edge_and_where_it_leads() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1)
    story.op(S1, read())
    found = EdgeGraph(story.trace()).path(0, 3)
    assert found is not None
    assert (found.first, found.second) == ("op0", "op3")
    assert found.path == (
        PathStep(by="record of e", to="record of e on s0"),
        PathStep(by="wait for edge edge", to="s1 has waited for edge"),
        PathStep(by="stream order on s1", to="op3"),
    )


def test_a_run_of_one_streams_operations_is_one_step() -> None:
    story = Story()
    for _ in range(4):
        story.op(S0, write())
    found = EdgeGraph(story.trace()).path(0, 3)
    assert found is not None
    assert found.path == (PathStep(by="stream order on s0, 3 on", to="op3"),)


def test_the_shortest_path_is_shown() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, HOST)
    story.op(S0, read())
    found = EdgeGraph(story.trace()).path(0, 3)
    assert found is not None
    assert [step.by for step in found.path] == ["stream order on s0"]


def test_a_dropped_wait_is_no_edge() -> None:
    story = Story()
    story.op(S0, write())
    story.edge(S0, S1, is_dropped=True)
    story.op(S1, read())
    assert EdgeGraph(story.trace()).path(0, 3) is None


def test_an_unknown_name_is_refused_with_those_near_it() -> None:
    story = Story()
    story.op(S0, write())
    graph = EdgeGraph(story.trace())
    assert graph.find("op0") == 0
    with pytest.raises(ExplainError, match=r"no operation or host action 'op1'.*near it: op0"):
        graph.find("op1")
    with pytest.raises(ExplainError, match=r"'nothing' in this run$"):
        graph.find("nothing")


def test_an_event_of_another_run_is_found_by_name_and_buffer() -> None:
    story, other = Story(), Story()
    for one in (story, other):
        one.op(S0, write())
        one.op(S1, read(storage=1))
    graph = EdgeGraph(story.trace())
    event = other.recorder.events[1]
    assert graph.places(event, "b1") == [1]  # type: ignore[arg-type]
    assert graph.places(event, "b0") == []  # type: ignore[arg-type]
