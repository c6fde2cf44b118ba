"""The house: rooms in one direction, no circle anywhere, and what each room must not know.

ARCHITECTURE.md describes the rooms; `make rooms` draws them.
"""

from __future__ import annotations

import re
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
