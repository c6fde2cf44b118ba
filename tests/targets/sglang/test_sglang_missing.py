"""Packages that are not installed: they can be imported by SGLang, and not be called."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from racegate.targets.sglang.inside.missing import VERSION, Missing, MissingPackages, is_missing


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names: list[str] = []
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(importlib.util, "find_spec", importlib.util.find_spec)
    monkeypatch.setattr(importlib.metadata, "version", importlib.metadata.version)
    MissingPackages(names.append).install()
    yield names
    for name in set(sys.modules) - before:
        del sys.modules[name]


def run_as(module: str, text: str) -> dict[str, object]:
    """Runs a program as code of a module."""
    space: dict[str, object] = {"__name__": module}
    exec(text, space)
    return space


def test_sglang_may_import_what_is_missing(refused: list[str]) -> None:
    space = run_as("sglang.srt.layers.x", "from sgl_kernel.utils import cast\nimport deep_gemm.a")
    assert isinstance(space["cast"], Missing) and isinstance(space["deep_gemm"], ModuleType)
    assert refused == []


def test_other_packages_are_told_that_it_is_not_there(refused: list[str]) -> None:
    with pytest.raises(ModuleNotFoundError):
        run_as("transformers.utils", "import sgl_kernel")


def test_who_asks_is_told_that_it_is_not_there(refused: list[str]) -> None:
    run_as("sglang.srt.layers.x", "import sgl_kernel")
    text = "import importlib.util\nfound = importlib.util.find_spec('sgl_kernel.utils')"
    assert run_as("sglang.srt.layers.x", text)["found"] is None


def test_a_call_is_refused_by_name(refused: list[str]) -> None:
    with pytest.raises(RuntimeError, match=r"sgl_kernel\.gemm\.fp8 was called"):
        run_as("sglang.srt.layers.x", "from sgl_kernel import gemm\ngemm.fp8(1, 2)")
    assert refused == ["sgl_kernel.gemm.fp8"]


def test_a_question_about_the_device_is_answered(refused: list[str]) -> None:
    text = "from sgl_kernel.utils import is_arch_support_pdl as asked\nanswer = asked()"
    assert run_as("sglang.srt.layers.x", text)["answer"] is False
    assert refused == []


def test_a_decorator_leaves_its_function(refused: list[str]) -> None:
    text = "from tilelang import jit\n@jit\ndef kernel():\n    return 3\n"
    kernel = run_as("sglang.srt.layers.x", text)["kernel"]
    assert callable(kernel) and kernel() == 3


def test_a_class_of_it_can_be_a_base(refused: list[str]) -> None:
    text = "from torchao import Base\nclass Mine(Base):\n    pass\nmade = Mine()"
    assert type(run_as("sglang.srt.layers.x", text)["made"]).__name__ == "Mine"


def test_its_version_is_newer_than_any_that_is_asked_for(refused: list[str]) -> None:
    assert importlib.metadata.version("sgl-kernel") == VERSION
    assert importlib.metadata.version("flashinfer_python") == VERSION
    assert not is_missing("transformers")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("no-such-package-at-all")
