"""Three-dimensional positions in the engine, beside everything that moves rows and counts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.engine.rows.mrope import coordinates
from racegate.history.schedule import LATE
from racegate.scenario.expect import Expect
from racegate.scenario.settings import (
    CacheMode,
    DrafterKind,
    DraftSampling,
    GraphMode,
    Numerics,
    Planning,
)
from racegate.scenario.spec import Image, Preempt, Request
from racegate_reference.places import place_of
from reference_scenarios import request
from support import scenario

RANDOM = DraftSampling.RANDOM
GRIDS = st.tuples(*[st.integers(1, 3)] * 3)


@settings(max_examples=60)
@given(
    gaps=st.lists(st.tuples(st.integers(0, 3), GRIDS), max_size=3),
    first=st.integers(0, 60),
    count=st.integers(0, 40),
)
def test_coordinates_of_any_chunk_are_those_of_the_definition(
    gaps: list[tuple[int, tuple[int, int, int]]], first: int, count: int
) -> None:
    images: list[Image] = []
    end = 0
    for gap, grid in gaps:
        images.append(Image(start=end + gap, grid=grid))
        end = images[-1].start + images[-1].tokens
    asked = msgspec.structs.replace(request(), images=tuple(images))
    expected = [place_of(asked, position) for position in range(first, first + count)]
    np.testing.assert_array_equal(
        coordinates(images, first, count), np.array(expected).reshape(-1, 3)
    )


@pytest.mark.parametrize(
    ("numerics", "engine"),
    [
        (Numerics.EXACT, {"planning": Planning.SIDE_STREAM, "draft_sampling": RANDOM}),
        (Numerics.FLOAT32, {"graph_mode": GraphMode.FULL_DECODE, "draft_len_max": 2}),
        (Numerics.EXACT, {"depth": 3, "drafter": DrafterKind.NGRAM, "prefill_chunk_max": 3}),
        (Numerics.EXACT, {"cache_mode": CacheMode.ALIGN, "draft_sampling": RANDOM}),
    ],
    ids=["side-stream", "graphs", "chunks", "align"],
)
def test_beside_everything_else(numerics: Numerics, engine: dict[str, Any]) -> None:
    of = scenario("mrope-moves")
    turned = msgspec.structs.replace(
        of,
        model=msgspec.structs.replace(of.model, numerics=numerics),
        engine=msgspec.structs.replace(of.engine, **engine),
        expect=Expect(),
        events=(*of.events, Preempt(step=6, request="C")),
    )
    result = Checker(turned).run(schedule=LATE)
    assert result.findings == ()
    # With columns the host waits for the counts: its coordinates are never ahead.
    drifts = result.stats.exercised["mrope_drifts"]
    assert (drifts > 0) != turned.engine.cache_mode.has_columns
    assert result.stats.exercised["preemptions"] > 0


@pytest.mark.parametrize("cache_mode", [CacheMode.ALIGN, CacheMode.OFFLOAD])
def test_a_prefix_with_another_grid_is_another_prefix(cache_mode: CacheMode) -> None:
    """Four requests of the same tokens: the third has the image of the first, the last has none."""
    of = scenario("mrope-moves")
    prompt = tuple(range(20))
    grids: tuple[tuple[int, int, int], ...] = ((1, 2, 4), (1, 4, 2), (1, 2, 4))
    requests = [
        Request(
            name=name,
            arrive=arrive,
            prompt=prompt,
            max_tokens=4,
            images=tuple(Image(start=1, grid=grid) for grid in grids[place : place + 1]),
        )
        for place, (name, arrive) in enumerate([("A", 0), ("B", 12), ("C", 24), ("D", 36)])
    ]
    turned = msgspec.structs.replace(
        of,
        engine=msgspec.structs.replace(of.engine, cache_mode=cache_mode),
        requests=tuple(requests),
        events=(),
        expect=Expect(),
    )
    result = Checker(turned).run(schedule=LATE)
    assert result.findings == ()
    assert result.stats.exercised["prefix_hits"] == 1


def test_text_is_what_it_is_without_coordinates() -> None:
    of = scenario("mrope-text")
    plain = msgspec.structs.replace(
        of, model=msgspec.structs.replace(of.model, mrope_section=()), expect=Expect()
    )
    delivered = [Checker(script).execute().result for script in (of, plain)]
    assert delivered[0] is not None and delivered[1] is not None
    assert delivered[0].delivered == delivered[1].delivered
