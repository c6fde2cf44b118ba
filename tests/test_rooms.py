"""The house: rooms in one direction, no circle anywhere, and what each room must not know.

ARCHITECTURE.md describes the rooms; `python -m racegate.rooms` draws them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "harness" / "racegate"

# From the bottom floor up: a room may import its own modules and rooms before it.
ROOMS = (
    "scenario",
    "history",
    "device",
    "interpose",
    "oracles",
    "explore",
    "engine",
    "faults",
    "check",
    "repro",
    "jobs",
    "ab",
    "evaluation",
    "bench",
    "report",
    "cli",
)
FLOOR = {name: floor for floor, name in enumerate(ROOMS)}
ARROWS_MAX = 100
MODULES_MAX = 13


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(path: Path) -> set[str]:
    """Modules of the harness that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are written in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] != "racegate":
                continue
            while len(parts) > 1 and ".".join(parts[1:]) not in MODULES:
                parts.pop()
            if len(parts) > 1:
                found.add(".".join(parts[1:]))
    return found


GRAPH: dict[str, set[str]] = {name: imports_of(path) for name, path in MODULES.items()}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def folder_of(module: str) -> str:
    """The folder a module lies in; a package lies in itself."""
    is_package = MODULES[module].name == "__init__.py"
    return module if is_package else module.rpartition(".")[0]


def circle_in(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The first circle of a graph, as a path that ends where it began."""
    done: set[str] = set()
    path: list[str] = []

    def visit(node: str) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        path.append(node)
        for neighbour in sorted(graph.get(node, ())):
            if circle := visit(neighbour):
                return circle
        path.pop()
        done.add(node)
        return []

    return next((circle for node in sorted(graph) if (circle := visit(node))), [])


def test_every_module_is_in_a_room() -> None:
    assert {room_of(name) for name in MODULES if name} == set(ROOMS)


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_no_arrow_goes_up(module: str) -> None:
    for imported in GRAPH[module]:
        assert FLOOR[room_of(imported)] <= FLOOR[room_of(module)], f"{module} imports {imported}"


def test_modules_have_no_circle() -> None:
    assert circle_in(GRAPH) == []


def test_folders_have_no_circle() -> None:
    """A room's inner rooms go one way too."""
    folders: dict[str, set[str]] = defaultdict(set)
    for module, imported in GRAPH.items():
        folders[folder_of(module)] |= {folder_of(name) for name in imported} - {folder_of(module)}
    assert circle_in(folders) == []


def test_a_circle_would_be_seen() -> None:
    assert circle_in({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]


def test_arrows_between_rooms_are_few() -> None:
    arrows = {(room_of(a), room_of(b)) for a, found in GRAPH.items() for b in found if a}
    assert len({(a, b) for a, b in arrows if a != b}) <= ARROWS_MAX


def test_rooms_are_neither_corridors_nor_cupboards() -> None:
    folders: dict[str, int] = defaultdict(int)
    for name, path in MODULES.items():
        if name and path.name != "__init__.py":
            folders[folder_of(name)] += 1
    assert {name: count for name, count in folders.items() if count > MODULES_MAX} == {}
