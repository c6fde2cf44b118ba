"""The house: rooms in one direction, no circle anywhere, and what each room must not know.

ARCHITECTURE.md describes the rooms; `make rooms` draws them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from rooms import (
    FLOOR,
    GRAPH,
    MODULES,
    PACKAGES,
    ROOMS,
    ROOT,
    STARTED,
    circle_in,
    draw_rooms,
    folder_of,
    imports_of,
    is_implied,
    room_arrows,
    room_of,
    started_by,
)

# What every engine's own environment brings.
INSIDE_MAY_IMPORT = {"msgspec", "numpy", "torch"}
DRAWING = ROOT / "docs" / "rooms.svg"
ROOMS_MAX, ARROWS_MAX = 21, 90
MODULES_MAX = 13


def test_every_module_is_in_a_room() -> None:
    assert {room_of(name) for name in MODULES} == set(ROOMS)
    assert len(ROOMS) <= ROOMS_MAX


def test_no_arrow_goes_up() -> None:
    for module in MODULES:
        for imported in GRAPH[module] | STARTED[module]:
            is_down = FLOOR[room_of(imported)] <= FLOOR[room_of(module)]
            assert is_down, f"{module} imports {imported}"


def test_modules_have_no_circle() -> None:
    assert circle_in(GRAPH) == []


def test_folders_have_no_circle() -> None:
    """A room's inner rooms go one way too. (What is started in a process of its own may import
    the types of whoever starts it.)
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for module, imported in GRAPH.items():
        folders[folder_of(module)] |= {folder_of(name) for name in imported} - {folder_of(module)}
    assert circle_in(folders) == []


def test_an_import_inside_a_string_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        '"""`racegate.cli.app` in a docstring imports nothing."""\n'
        'PROGRAM = """import sys\nfrom racegate.cli.app import main\n"""\n'
        'COMMAND = ("-m", "racegate.interpose.child")\n'
        'SCHEMA = "racegate.witness/1"\n'
    )
    assert imports_of(source) == {"cli.app"}
    assert started_by(source) == {"interpose.child"}


def test_a_circle_would_be_seen() -> None:
    assert circle_in({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]


def test_arrows_between_rooms_are_few() -> None:
    assert sum(map(len, room_arrows().values())) <= ARROWS_MAX


def test_rooms_are_neither_corridors_nor_cupboards() -> None:
    folders: dict[str, int] = defaultdict(int)
    for name, path in MODULES.items():
        if path.name != "__init__.py" and path.is_relative_to(PACKAGES["racegate"]):
            folders[folder_of(name)] += 1
    assert {name: count for name, count in folders.items() if count > MODULES_MAX} == {}


def test_targets_depend_on_what_they_share_and_never_on_each_other() -> None:
    modules = [name for name in MODULES if name.startswith("targets.")]
    assert {"common", "vllm", "sglang"} <= {name.split(".")[1] for name in modules}
    for module in modules:
        mine, imported = module.split(".")[1], GRAPH[module] | STARTED[module]
        theirs = {name.split(".")[1] for name in imported if name.startswith("targets.")}
        assert theirs <= {mine, "common"}, module


def test_what_runs_in_an_engines_environment_needs_little() -> None:
    """What is imported with a module counts: functions import the engine itself."""
    reached = {name for name in MODULES if re.match(r"targets\.\w+\.inside", name)}
    assert {name.split(".")[1] for name in reached} == {"common", "vllm", "sglang"}
    waiting = list(reached)
    while waiting:
        module = waiting.pop()
        imported = first_imports_of(MODULES[module])
        packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
        assert packages - {"racegate"} <= INSIDE_MAY_IMPORT, module
        own = {name.removeprefix("racegate.") for name in imported if name.startswith("racegate.")}
        new = {name if name in MODULES else name.rpartition(".")[0] for name in own} - reached
        reached |= new
        waiting += new
    assert "interpose.device.session" in reached


def first_imports_of(path: Path) -> set[str]:
    """What a module imports when it is imported, by full names."""
    found: set[str] = set()
    waiting: list[ast.stmt] = ast.parse(path.read_text()).body
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.With):
            waiting += node.body
    return found


def test_the_drawing_is_not_stale() -> None:
    assert DRAWING.read_text(encoding="utf-8") == draw_rooms(), "`make rooms` draws it again"


def test_the_drawing_has_every_arrow_and_all_go_down() -> None:
    tree = ElementTree.parse(DRAWING)
    drawn = set()
    for path in tree.iter("{http://www.w3.org/2000/svg}path"):
        title = path.find("{http://www.w3.org/2000/svg}title")
        if title is None or title.text is None:
            continue  # an arrow's head
        heights = [int(y) for y in re.findall(r"-?\d+ (-?\d+)", path.attrib["d"])]
        assert all(upper <= lower for upper, lower in pairwise(heights)), title.text
        assert heights[0] < heights[-1], title.text
        drawn.add(tuple(title.text.split(" imports ")))
    arrows = {(room, target) for room, below in room_arrows().items() for target in below}
    assert drawn == arrows


def test_an_arrow_is_implied_by_others() -> None:
    arrows = {"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}
    assert is_implied(arrows, "a", "c")
    assert not is_implied(arrows, "a", "b")
