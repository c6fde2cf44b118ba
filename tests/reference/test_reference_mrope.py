"""Three-dimensional positions in the reference: coordinates by hand, and from scratch."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from racegate.scenario.settings import ModelSpec, Numerics
from racegate.scenario.spec import Image, Request
from racegate_reference.model import Cache, build_model
from racegate_reference.numbers import mix_word
from racegate_reference.paths import Path
from racegate_reference.places import place_of
from racegate_reference.recompute import recompute
from reference_scenarios import SMALL, request
from support import JUDGED

IMAGES = (Image(start=2, grid=(1, 2, 3)), Image(start=9, grid=(2, 1, 1)))
# Two tokens of text, an image, one of text, another image, and text.
PLACES = [
    *[(0, 0, 0), (1, 1, 1)],
    *[(2, 2, 2), (2, 2, 3), (2, 2, 4), (2, 3, 2), (2, 3, 3), (2, 3, 4)],
    (5, 5, 5),
    *[(6, 6, 6), (7, 6, 6)],
    *[(8, 8, 8), (9, 9, 9), (10, 10, 10)],
]


def turned(numerics: Numerics, section: tuple[int, ...]) -> ModelSpec:
    return msgspec.structs.replace(SMALL, head_size=8, numerics=numerics, mrope_section=section)


def with_images(images: tuple[Image, ...]) -> Request:
    prompt = tuple(place % 11 for place in range(12))
    return msgspec.structs.replace(request(prompt=prompt), images=images)


def test_coordinates_by_hand() -> None:
    asked = with_images(IMAGES)
    assert [tuple(place_of(asked, position)) for position in range(len(PLACES))] == PLACES


@pytest.mark.parametrize("numerics", JUDGED)
def test_incremental_is_from_scratch(numerics: Numerics) -> None:
    model = build_model(turned(numerics, (1, 1, 2)))
    path = Path(model, with_images(IMAGES))
    tokens = path.tokens(0, len(PLACES))
    scratch = recompute(model, tokens, np.array(PLACES))
    np.testing.assert_allclose(path.hidden(len(PLACES) - 1), scratch.hidden[-1], rtol=1e-9)
    cache = scratch.state[2]
    assert isinstance(cache, Cache)
    np.testing.assert_allclose(path.kv(2, 0, len(PLACES)), cache.kv, rtol=1e-9, atol=1e-11)


def test_each_pair_turns_with_its_coordinate() -> None:
    numerics = build_model(turned(Numerics.EXACT, (1, 1, 2))).numerics
    x = np.arange(8, dtype=np.uint32)[None, None]
    places = [5, 5, 6, 6, 7, 7, 7, 7]
    expected = [mix_word(i + place * 0x85EBCA6B) for i, place in enumerate(places)]
    assert numerics.rot(x, np.array([[5, 6, 7, 7]])).ravel().tolist() == expected


@pytest.mark.parametrize("numerics", JUDGED)
def test_in_text_it_is_the_position(numerics: Numerics) -> None:
    """Whatever the section is; an image is something else."""
    plain = Path(build_model(turned(numerics, ())), with_images(()))
    text = Path(build_model(turned(numerics, (0, 3, 1))), with_images(()))
    image = Path(build_model(turned(numerics, (0, 3, 1))), with_images(IMAGES))
    np.testing.assert_array_equal(text.hidden(13), plain.hidden(13))
    assert text.tokens(0, 30) == plain.tokens(0, 30)
    assert (image.hidden(13) != plain.hidden(13)).any()
