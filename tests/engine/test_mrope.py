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
from racegate.scenario.spec import (
    DrafterKind,
    DraftSampling,
    Expect,
    GraphMode,
    Image,
    Numerics,
    Planning,
    Preempt,
)
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
    ],
    ids=["side-stream", "graphs", "chunks"],
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
    assert result.stats.exercised["mrope_drifts"] > 0
    assert result.stats.exercised["preemptions"] > 0


def test_text_is_what_it_is_without_coordinates() -> None:
    of = scenario("mrope-text")
    plain = msgspec.structs.replace(
        of, model=msgspec.structs.replace(of.model, mrope_section=()), expect=Expect()
    )
    delivered = [Checker(script).execute().result for script in (of, plain)]
    assert delivered[0] is not None and delivered[1] is not None
    assert delivered[0].delivered == delivered[1].delivered
