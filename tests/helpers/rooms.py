"""The house as a graph: modules, rooms and who imports whom; and its drawing.

`python tests/helpers/rooms.py docs/rooms.svg`, or `make rooms`, draws it. An arrow that others
imply is thin: who imports a room may import what stands below it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "racegate": ROOT / "harness" / "racegate",
    "racegate_kernels": ROOT / "kernels" / "racegate_kernels",
    "racegate_reference": ROOT / "reference" / "racegate_reference",
    "reports": ROOT / "reports",
}

# From the bottom floor up: a room may import its own modules and rooms before it. `racegate` is
# what `import racegate` offers: it hands names on, and so stands above the rooms that have them.
ROOMS = (
    "scenario",
    "racegate_kernels",
    "history",
    "racegate_reference",
    "order",
    "device",
    "interpose",
    "oracles",
    "targets",
    "explore",
    "strategies",
    "engine",
    "faults",
    "check",
    "jobs",
    "measure",
    "report",
    "reports",
    "racegate",
    "cli",
    "__main__",
)
FLOOR = {name: floor for floor, name in enumerate(ROOMS)}


def module_name(path: Path) -> str:
    """`engine.state.plan`; of an `__init__`, the package it is of. The packages and the makers of
    reports lie side by side, and what `racegate` holds is known without its name.
    """
    package, folder = next(item for item in PACKAGES.items() if path.is_relative_to(item[1]))
    parts = path.relative_to(folder).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return _known_as((package, *parts))


def _known_as(parts: Sequence[str]) -> str:
    return ".".join(parts[1:] if parts[0] == "racegate" and len(parts) > 1 else parts)


MODULES = {
    module_name(path): path for folder in PACKAGES.values() for path in sorted(folder.rglob("*.py"))
}
# In strings: programs that are handed to another process, and modules that one is started with.
_IMPORT = re.compile(r"^\s*(?:from|import) (racegate[\w.]*)(?: import (\w+))?", re.MULTILINE)
_MODULE = re.compile(r"racegate\w*(?:\.[a-z_]\w*)+")


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> set[str]:
    """Modules of the house that a file imports: inside functions too, and inside strings."""
    found: set[str | None] = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            found |= {_module(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are written in full"
            found |= {_module(f"{node.module}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Constant):
            imports = _IMPORT.findall(str(node.value))
            found |= {_module(".".join(filter(None, names))) for names in imports}
    return {name for name in found if name is not None}


def started_by(path: Path) -> set[str]:
    """Modules that a file names as a whole string, as it does what another process begins with."""
    nodes = ast.walk(_parsed(path))
    words = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    found = {_module(word) for word in words if _MODULE.fullmatch(word)}
    return {name for name in found if name is not None and name not in PACKAGES}


def _module(name: str) -> str | None:
    """The module that an import takes a name from; None if it is not of the house."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return None
    while len(parts) > 1 and _known_as(parts) not in MODULES:
        parts.pop()
    return _known_as(parts)


GRAPH: dict[str, set[str]] = {name: imports_of(path) for name, path in MODULES.items()}
STARTED: dict[str, set[str]] = {name: started_by(path) for name, path in MODULES.items()}


def room_of(module: str) -> str:
    """The room a module lies in, however deep."""
    return module.partition(".")[0]


def folder_of(module: str) -> str:
    """The folder a module lies in; a package lies in itself, as a room of one file does."""
    is_package = MODULES[module].name == "__init__.py"
    return module if is_package or module in ROOMS else module.rpartition(".")[0]


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


def room_arrows() -> dict[str, set[str]]:
    """Room -> the rooms that it imports, or starts a process with."""
    arrows: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module, imported in GRAPH.items():
        used = imported | STARTED[module]
        arrows[room_of(module)] |= {room_of(name) for name in used} - {room_of(module)}
    return arrows


def levels_of(arrows: Mapping[str, set[str]]) -> dict[str, int]:
    """Room -> how many rooms stand below it one on another. The graph has no circle."""
    levels: dict[str, int] = {}
    for room in ROOMS:  # from the bottom up: what a room imports has its level already
        levels[room] = max((levels[below] + 1 for below in arrows[room]), default=0)
    return levels


def is_implied(arrows: Mapping[str, set[str]], room: str, target: str) -> bool:
    """Whether a room could reach the target through another room that it imports."""
    ways = list(arrows[room] - {target})
    seen = set(ways)
    while ways:
        for below in arrows[ways.pop()]:
            if below == target:
                return True
            if below not in seen:
                seen.add(below)
                ways.append(below)
    return False


# Of the drawing, in pixels.
WIDTH, BOX_WIDTH, BOX_HEIGHT = 860, 118, 34
LEVEL_HEIGHT, COLUMN_WIDTH, MARGIN = 78, 150, 28

STYLE = """
    text { font: 14px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
    .room { fill: #ddf4ff; stroke: #0969da }
    .arrow { fill: none; stroke: #0969da; stroke-width: 1.6 }
    .implied { fill: none; stroke: #6e7781; stroke-width: 0.8; stroke-opacity: 0.45 }
    .head { fill: #0969da }
    .faint { fill: #6e7781 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .room { fill: #0c2d4a; stroke: #58a6ff }
      .arrow { stroke: #58a6ff }
      .implied { stroke: #8b949e }
      .head { fill: #58a6ff }
      .faint { fill: #8b949e }
    }
"""

HEAD = (
    '<marker id="{id}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="{id}" d="M0 0 L8 4 L0 8 z"/></marker>'
)


class Box(NamedTuple):
    """Where a room is drawn: its centre."""

    x: int
    y: int


def layout(levels: Mapping[str, int]) -> dict[str, Box]:
    """A level above another if it imports it; rooms of a level side by side."""
    top = max(levels.values())
    boxes = {}
    for level in range(top + 1):
        beside = [room for room in ROOMS if levels[room] == level]
        for place, room in enumerate(beside):
            x = WIDTH // 2 + (2 * place - len(beside) + 1) * COLUMN_WIDTH // 2
            y = MARGIN + BOX_HEIGHT // 2 + (top - level) * LEVEL_HEIGHT
            boxes[room] = Box(x, y)
    return boxes


def draw_arrow(room: str, target: str, boxes: Mapping[str, Box], *, implied: bool) -> str:
    """A line down to a neighbour; what other arrows imply is an arc beside the rooms."""
    start, end = boxes[room], boxes[target]
    title = f"<title>{room} imports {target}</title>"
    if not implied:
        y_start, y_end = start.y + BOX_HEIGHT // 2, end.y - BOX_HEIGHT // 2
        path = f"M{start.x} {y_start} L{end.x} {y_end - 1}"
        return f'<path class="arrow" marker-end="url(#head)" d="{path}">{title}</path>'
    # Half of them on each side, as far out as they are long.
    side = -1 if (ROOMS.index(room) + ROOMS.index(target)) % 2 else 1
    out = (end.y - start.y) // LEVEL_HEIGHT
    outermost = max(side * start.x, side * end.x) + BOX_WIDTH // 2
    x = side * (outermost + 22 * out)
    x_start, x_end = start.x + side * BOX_WIDTH // 2, end.x + side * (BOX_WIDTH // 2 + 1)
    path = f"M{x_start} {start.y + 6} C{x} {start.y + 6} {x} {end.y - 6} {x_end} {end.y - 6}"
    return f'<path class="implied" marker-end="url(#faint)" d="{path}">{title}</path>'


def draw_rooms() -> str:
    """The rooms as SVG: every import between two of them is an arrow, and goes down."""
    arrows = room_arrows()
    levels = levels_of(arrows)
    boxes = layout(levels)
    pairs = [(room, target) for room in reversed(ROOMS) for target in sorted(arrows[room])]
    implied = {pair: is_implied(arrows, *pair) for pair in pairs}
    height = 2 * MARGIN + BOX_HEIGHT + max(levels.values()) * LEVEL_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">',
        "<title>The rooms of racegate: who imports whom</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{HEAD.format(id='head')}{HEAD.format(id='faint')}</defs>",
    ]
    for pair in sorted(pairs, key=lambda pair: not implied[pair]):
        lines.append(draw_arrow(*pair, boxes, implied=implied[pair]))
    for room, box in boxes.items():
        x, y = box.x - BOX_WIDTH // 2, box.y - BOX_HEIGHT // 2
        size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        lines.append(f'<rect class="room" x="{x}" y="{y}" {size} rx="6"/>')
        lines.append(f'<text x="{box.x}" y="{box.y + 5}">{room}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw_rooms(), encoding="utf-8")
