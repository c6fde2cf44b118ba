"""Rules that no linter knows: layers, independence of the reference, sizes, bans."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from together import failures

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "harness" / "racegate"
SOURCES = sorted(
    path for folder in ("harness", "reference", "kernels") for path in (ROOT / folder).rglob("*.py")
)
HARNESS = [path for path in SOURCES if path.is_relative_to(PACKAGE)]

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
PARAMETERS_MAX = 7
# Names of `Any` in annotations, outside what wraps libraries without types.
ANY_MAX = 40
UNTYPED = (
    "targets/common/inside/",
    "targets/vllm/inside/",
    "targets/sglang/inside/",
    "device/cuda/torch.py",
    "device/cuda/driver.py",
    "_triton.py",
    "measure/bench/kernels.py",
    "interpose/device/",
    "interpose/ranks/",
    "interpose/gpu/",
    "interpose/kernels/",
    "interpose/program/",
    "interpose/child.py",
    "interpose/surface.py",
)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_kernels_know_nothing_of_the_harness() -> None:
    for path in (ROOT / "kernels").rglob("*.py"):
        assert not [
            m for m in imports_of(path) if m.split(".")[0] in ("racegate", "racegate_reference")
        ]


def test_only_check_knows_the_reference() -> None:
    for path in HARNESS:
        uses = [m for m in imports_of(path) if m.split(".")[0] == "racegate_reference"]
        assert not uses or path.parent.name == "check"


def test_every_source_is_tidy() -> None:
    assert failures(_is_tidy, SOURCES, named=named) == []


def _is_tidy(path: Path) -> None:
    _is_small(path)
    _is_described(path)
    _has_nothing_banned(path)
    if "kernels" not in path.parts:
        _takes_few_parameters(path)


def _is_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef) and not _is_kernel(node):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX, node.name


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_option(parameter: ast.arg) -> bool:
    """What a user sees: typer reads it from the signature of a command, or of a set of options."""
    annotation = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
    return "typer." in annotation or annotation.endswith(("Option", "Argument"))


def _takes_few_parameters(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            names = [a.arg for a in given if not _is_option(a)]
            assert len([n for n in names if n not in ("self", "cls")]) <= PARAMETERS_MAX, node.name


def test_types_are_seldom_any() -> None:
    found = {
        named(path): sum(
            isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree_of(path))
        )
        for path in SOURCES
        if not any(part in named(path) for part in UNTYPED)
    }
    assert sum(found.values()) <= ANY_MAX, {name: n for name, n in found.items() if n}


BANS = (
    (r"except Exception|except:", "swallows what it does not know"),
    (r"^\s*global ", "module state"),
    (r"\b(TODO|FIXME|XXX)\b", "a promise"),
    (r"time\.sleep\(", "a sleep is not an order"),
)


def _has_nothing_banned(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        for pattern, why in BANS:
            assert not re.search(pattern, line), f"{named(path)}:{number}: {why}: {line.strip()}"


def test_the_engine_never_asks_for_a_fault() -> None:
    for path in (PACKAGE / "engine").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.If):
                assert "fault" not in ast.unparse(node.test).lower(), named(path)
        assert not [m for m in imports_of(path) if m.startswith("racegate.faults")]


def _is_described(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), f"{named(path)} has no docstring"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node) or _is_kernel(node), f"{named(path)}: {node.name}"
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = " ".join(ast.unparse(base) for base in node.bases)
            speaks_for_itself = re.search(r"Protocol|Enum|IntFlag", bases)
            assert speaks_for_itself or ast.get_docstring(node), f"{named(path)}: {node.name}"
