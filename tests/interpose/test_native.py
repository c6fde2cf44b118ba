"""The native parts, compiled as strictly as the compiler can, and run under its sanitizers.

A user's compiler may warn of what ours does not: only here is a warning an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_torch import needs_cuda_torch
from racegate.interpose.build import build_forward, build_library, find_toolkit
from racegate.interpose.errors import BadInput
from racegate.interpose.native.library import build_operators
from racegate.order.compiled import build_order
from racegate.order.native import compiler

LAWS = Path(__file__).parents[1] / "order"
STRICT = ("-Wall", "-Wextra", "-Werror")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# Compiles the order anew, and tells it, its Python twin and their model the same steps.
LAW = """
import sys
from racegate.order.native import compiler
from racegate.explore.strategies import register_profiles
from hypothesis import settings
register_profiles()
settings.load_profile("ci")
compiler.FLAGS += tuple(sys.argv[1:])
import test_order as laws
laws.test_conflicts_are_those_of_every_byte_by_itself()
laws.test_the_two_know_the_same_and_say_the_same()
with open("/proc/self/maps") as maps:
    print("told", *(line.split()[-1] for line in maps if "racegate_order" in line))
"""
# What the sanitizers have to see, or a run without a word would say nothing.
WRONG = """
int read_behind(int at) { int three[3] = {1, 2, 3}; return three[at]; }
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
        lambda: build_forward(find_toolkit()),
    ],
    ids=["order", "operators", "virtual", "forward"],
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


def sanitizer() -> str:
    """The library that has to be loaded before Python, empty if the compiler has none."""
    try:
        command = [*compiler.find_compiler(), "-print-file-name=libasan.so"]
    except BadInput:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = Path(done.stdout.strip())
    return str(found) if found.is_absolute() and found.exists() else ""


def run_sanitized(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_PRELOAD": sanitizer(),
        "ASAN_OPTIONS": "detect_leaks=0",  # of what Python keeps to its end
        "PYTHONPATH": os.pathsep.join([str(LAWS), *sys.path]),
    }
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not sanitizer(), reason="the C compiler brings no address sanitizer")
class TestSanitized:
    def test_the_order_touches_nothing_that_is_not_its_own(self, empty_cache: Path) -> None:
        done = run_sanitized(LAW, *SANITIZED)
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.startswith("told ")
        assert str(empty_cache) in done.stdout

    def test_they_would_say_it(self, tmp_path: Path) -> None:
        source, library = tmp_path / "wrong.c", tmp_path / "wrong.so"
        source.write_text(WRONG)
        command = (*compiler.find_compiler(), *compiler.FLAGS, *SANITIZED)
        subprocess.run([*command, str(source), "-o", str(library)], check=True)
        program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).read_behind(3)"
        done = run_sanitized(program, str(library))
        assert done.returncode != 0
        assert "out of bounds" in done.stderr
