"""bfloat16 is for measuring speed: everything that judges refuses it, and says what to do."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.engine.model.weights import make_weights
from racegate.engine.state.sizes import quantity_of
from racegate.scenario.files import load
from racegate.scenario.settings import ModelSpec, Numerics
from racegate.scenario.spec import OwnScenario, ScenarioError
from racegate.scenario.validation import validate
from racegate_reference.engine import run_reference
from support import scenario


def in_bfloat16() -> OwnScenario:
    known = scenario("two-row-cycle")
    model = msgspec.structs.replace(known.model, numerics=Numerics.BFLOAT16)
    return msgspec.structs.replace(known, model=model)


def test_no_run_is_judged_in_it() -> None:
    advice = r"numerics.* bfloat16 is for measuring speed on CUDA .*use exact or float32"
    with pytest.raises(CheckError, match=f"two-row-cycle: {advice}"):
        Checker(in_bfloat16())
    with pytest.raises(ScenarioError, match=advice):
        run_reference(in_bfloat16())
    with pytest.raises(ScenarioError, match=advice):
        validate(in_bfloat16())


def test_a_file_that_asks_for_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fast.toml"
    path.write_text(
        'schema = 1\nname = "fast"\ntitle = "fast"\n[model]\nnumerics = "bfloat16"\n'
        '[[requests]]\nname = "A"\nprompt_len = 5\nmax_tokens = 4\n'
    )
    with pytest.raises(ScenarioError, match=rf"{path.name}.*\$\.model\.numerics.*use exact"):
        load(path)


def test_weights_are_those_of_float32_rounded() -> None:
    drawn = {
        numerics: make_weights(ModelSpec(numerics=numerics), has_mtp=True)
        for numerics in (Numerics.FLOAT32, Numerics.BFLOAT16)
    }
    for name, full in drawn[Numerics.FLOAT32].items():
        short = drawn[Numerics.BFLOAT16][name]
        assert short.dtype == quantity_of(Numerics.BFLOAT16)
        np.testing.assert_allclose(short.astype(np.float32), full, rtol=2.0**-8)


@given(st.integers(0, (1 << 16) - 1))
def test_its_bits_are_those_of_torch(bits: int) -> None:
    host = np.array([bits], np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    signed = torch.tensor([bits - (bits >> 15 << 16)], dtype=torch.int16)
    device = signed.view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(host, device)
