"""What starting costs: the virtual device needs neither torch nor triton, nor what tests need, and
`--help` needs hardly anything.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a fresh interpreter has after a command; exit codes do not matter here.
PROGRAM = """
import sys
from racegate.cli.start import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""
# All modules of commands, as `pip install racegate` has them.
WITHOUT_TORCH = """
import importlib, pkgutil, sys
sys.modules.update(torch=None, triton=None, transformers=None)
import racegate.cli
for module in pkgutil.walk_packages(racegate.cli.__path__, "racegate.cli."):
    importlib.import_module(module.name)
"""
# Where a distribution has another name than its module.
IMPORTED_AS = {"markdown_it_py": "markdown_it", "cuda_bindings": "cuda"}
OWN = ("racegate", "racegate_kernels", "racegate_reference")
JUDGED = ("vllm", "sglang", "safetensors")  # whose processes import them, and what they need
HEAVY = {"torch", "triton", "hypothesis", "pytest", "jinja2", "cuda"}


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules that a command has imported, in its own process."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(result.stderr.split())


@pytest.mark.parametrize(
    "command",
    [
        ("run", "scenarios/steady_mixed_accepts.toml"),
        ("gate", "-k", "stop-token", "--workers", "1"),
    ],
    ids=lambda command: command[0],
)
def test_the_virtual_device_needs_no_gpu_library(command: tuple[str, ...]) -> None:
    imported = modules_after(*command)
    assert "numpy" in imported
    assert imported & HEAVY == set()


@pytest.mark.parametrize(
    "command",
    [
        ("run", "scenarios/steady_mixed_accepts.toml"),
        ("gate", "-k", "stop-token", "--workers", "1", "--junit", "{folder}/junit.xml"),
        ("replay", "--help"),
        ("explain", "--help"),
        ("fuzz", "--help"),
        ("torch", "run", "--help"),
        ("vllm", "gate", "--help"),
        ("history", "vllm", "--help"),
    ],
    ids=lambda command: command[0],
)
def test_a_gate_needs_nothing_of_what_measures_the_tool(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """A wheel has `racegate.measure` for those who measure; a user's gate works without it."""
    words = [word.format(folder=tmp_path) for word in command]
    program = f"import sys\nsys.modules['racegate.measure'] = None\n{PROGRAM}"
    line = [sys.executable, "-c", program, *words]
    subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)


def test_a_gate_from_a_clone_installs_no_torch() -> None:
    """What nothing imports is not installed either: gigabytes, and most of the time to the first
    verdict.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [one for one in project["dependencies"] if one.startswith(("torch", "triton"))]
    made = ["make", "-n", "-B", "gate"]
    said = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line for line in said.splitlines() if "pip install" in line]
    assert [line.partition("--editable ")[2] for line in installs] == ["."]


def test_what_is_imported_is_asked_for() -> None:
    """What is here because something else brings it may be missing where a wheel is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = list(chain(project["dependencies"], *project["optional-dependencies"].values()))
    known = {re.split(r"[^\w-]", one)[0].replace("-", "_") for one in asked}
    known |= {module for name, module in IMPORTED_AS.items() if name in known}
    known |= {*sys.stdlib_module_names, *OWN, *JUDGED}
    found = {
        (name.partition(".")[0], str(path.relative_to(ROOT)))
        for folder in ("harness", "reference", "kernels")
        for path in (ROOT / folder).rglob("*.py")
        for name in imports_of(ast.parse(path.read_text()))
    }
    assert [one for one in sorted(found) if one[0] not in known] == []


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_every_command_can_be_asked_where_there_is_no_torch() -> None:
    """A release brings its own, a program has its own, and `torch run` says that it needs one."""
    command = [sys.executable, "-c", WITHOUT_TORCH]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", [("torch", "--help"), ("torch", "run", "--help")])
def test_commands_for_programs_import_no_torch(command: tuple[str, ...]) -> None:
    assert modules_after(*command) & {"torch", "triton"} == set()


@pytest.mark.parametrize("command", [("--help",), ("--version",)])
def test_what_runs_nothing_imports_nothing(command: tuple[str, ...]) -> None:
    assert modules_after(*command) & (HEAVY | {"numpy", "multiprocessing"}) == set()


def test_garbage_is_collected_again_once_a_command_runs() -> None:
    program = """
import atexit, gc
from racegate.cli.start import main
atexit.register(lambda: print("collecting:", gc.isenabled(), gc.get_freeze_count() > 10_000))
main()
"""
    command = [sys.executable, "-c", program, "scenarios", "list"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.endswith("collecting: True True\n")
