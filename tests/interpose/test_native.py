"""The native parts, compiled as strictly as the compiler can, and run under its sanitizers.

A user's compiler may warn of what ours does not: only here is a warning an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_torch import needs_cuda_torch
from racegate.history.finding import Stack
from racegate.interpose.build import build_forward, build_library, build_nccl, find_toolkit
from racegate.interpose.errors import BadInput
from racegate.interpose.native.library import build_operators, new_walk
from racegate.order.compiled import build_order
from racegate.order.native import compiler
from sanitized import run as run_sanitized
from sanitized import sanitizer

STRICT = ("-Wall", "-Wextra", "-Werror")
HERE = Path(__file__).parent
# Laws of the order, and operators and copies of a program: `make sanitize` runs the rest.
LAWS = f"{HERE.parent / 'order' / 'test_order.py'}::test_"
SANITIZED = (
    f"{LAWS}conflicts_are_those_of_every_byte_by_itself",
    f"{LAWS}the_two_know_the_same_and_say_the_same",
    str(HERE / "test_compiled_operators.py"),
)
# What the sanitizers have to see, or a run without a word would say nothing.
WRONG = """
int read_behind(int at) { int three[3] = {1, 2, 3}; return three[at]; }
"""
READS_BEHIND = """
import ctypes, pathlib, sys
from racegate.order.native.compiler import compiled
source = pathlib.Path(sys.argv[1])
ctypes.CDLL(str(compiled("wrong.so", [source], read=[source]))).read_behind(3)
"""


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is compiled yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@needs_cuda_torch
@pytest.mark.parametrize(
    "build",
    [
        build_order,
        build_operators,
        lambda: build_library(find_toolkit()),
        lambda: build_nccl(find_toolkit())[0],
        lambda: build_forward(find_toolkit()),
    ],
    ids=["order", "operators", "virtual", "nccl", "forward"],
)
def test_the_compiler_has_nothing_to_warn_of(
    build: Callable[[], Path], empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "FLAGS", (*compiler.FLAGS, *STRICT))
    assert build().is_relative_to(empty_cache)


def test_a_warning_would_be_an_error(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = empty_cache / "unused.c"
    source.write_text("int one(int never_used) { return 1; }\n")
    assert compiler.compiled("one.so", [source], read=[source]).exists()
    monkeypatch.setattr(compiler, "FLAGS", (*compiler.FLAGS, *STRICT))
    with pytest.raises(BadInput, match="never_used"):
        compiler.compiled("two.so", [source], read=[source])


@pytest.mark.skipif(not sanitizer(), reason="the C compiler brings no address sanitizer")
@needs_cuda_torch
class TestSanitized:
    def test_nothing_in_c_touches_what_is_not_its_own(self) -> None:
        done = run_sanitized("-m", "pytest", "-p", "sanitized", "-q", "-n", "0", *SANITIZED)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert " passed" in done.stdout and "skipped" not in done.stdout

    def test_they_would_say_it(self, tmp_path: Path) -> None:
        source = tmp_path / "wrong.c"
        source.write_text(WRONG)
        done = run_sanitized("-c", READS_BEHIND, str(source))
        assert done.returncode != 0
        assert "out of bounds" in done.stderr


@needs_cuda_torch
def test_a_frame_without_a_line_has_its_functions() -> None:
    """As the code that starts a thread, or a function that a compiler put together, may be."""
    walk, _ = new_walk(lambda code: int(code.co_filename == __file__))

    def unnumbered() -> Stack:
        return walk(None)

    numbered = unnumbered()
    unnumbered.__code__ = unnumbered.__code__.replace(co_linetable=b"")
    assert numbered[0][1] == unnumbered.__code__.co_firstlineno + 1
    assert unnumbered()[0] == (__file__, unnumbered.__code__.co_firstlineno, numbered[0][2])
