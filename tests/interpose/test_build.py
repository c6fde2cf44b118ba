"""Building the runtime: what is exported, what is missing, and what the messages say."""

from __future__ import annotations

import _struct
import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_torch import why_not
from racegate.interpose.build import (
    Toolkit,
    build_forward,
    build_library,
    find_toolkit,
    stub_source,
)
from racegate.interpose.elf import exported_functions
from racegate.interpose.errors import BadInput
from racegate.order.native.compiler import find_compiler


def a_library() -> Path:
    return Path(_struct.__file__)


def test_exports_of_a_library_are_read() -> None:
    assert "PyInit__struct" in exported_functions(a_library())


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("text")
    with pytest.raises(BadInput, match=r"x\.so is not"):
        exported_functions(tmp_path / "x.so")


def test_every_entry_point_gets_a_function_that_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "cuda.h").write_text(
        "#define cuMemAlloc cuMemAlloc_v2\nCUresult CUDAAPI cuStreamBatch(CUstream s);\n"
    )
    source = stub_source(Toolkit("2.0", 13000, a_library(), tmp_path))
    for name in ("cuMemAlloc", "cuMemAlloc_v2", "cuStreamBatch", "PyInit__struct"):
        assert f'int {name}(void) {{ return vg_unmodelled_for("{name}", ' in source


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")
def test_what_stands_in_front_of_a_real_runtime_has_all_that_it_calls() -> None:
    """Sources are shared with the virtual runtime: what only that has would be missing on a GPU.
    Without a GPU the library ends where it looks for the real runtime, once all is linked.
    """
    load = f"import ctypes, os; ctypes.CDLL({str(build_forward(find_toolkit()))!r}, os.RTLD_NOW)"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    assert "undefined symbol" not in done.stderr
    assert "no CUDA runtime" in done.stderr


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install ziglang"):
        find_compiler()


def test_ziglang_stands_in_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert find_compiler() == (sys.executable, "-m", "ziglang", "cc")


def why_not_ziglang() -> str:
    return why_not() or ("" if importlib.util.find_spec("ziglang") else "ziglang is not installed")


@pytest.mark.skipif(bool(why_not_ziglang()), reason=why_not_ziglang() or "it can run")
def test_ziglang_compiles_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = build_library(find_toolkit())
    assert library.is_relative_to(tmp_path)
    assert {"cudaMemcpyAsync", "cuInit", "vg_drain"} <= set(exported_functions(library))
    ctypes.CDLL(str(library))


def test_a_cpu_build_of_torch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "version.py").write_text("__version__ = '2.0'\ncuda: str | None = None\n")
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: type("Spec", (), {"origin": folder / "x.py"})
    )
    with pytest.raises(BadInput, match="build without CUDA"):
        find_toolkit()
