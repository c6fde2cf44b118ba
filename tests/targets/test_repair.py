"""The missing edge as a change of a program's source."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_torch import needs_cuda_torch
from program_verdicts import finding
from racegate.history.finding import Hazard, Race
from racegate.targets.program.repair import (
    from_here,
    module_of,
    repair_of,
    repaired_sources,
    with_edge,
    with_edge_of_module,
)
from repository import ROOT
from warmed import Warmth, run_command

LOADER = ROOT / "docs" / "examples" / "loader.py"


def race_in(file: Path, first: int, second: int, **changes: object) -> Race:
    found = finding("a" * 12, str(file))
    sides = {
        name: msgspec.structs.replace(side, stack=((str(file), line, "main"),))
        for name, side, line in (("first", found.first, first), ("second", found.second, second))
    }
    return msgspec.structs.replace(found, **sides, **changes)


def test_a_page_shows_the_edge_as_a_diff() -> None:
    said = repair_of(race_in(LOADER, 15, 13)).splitlines()
    assert [line for line in said if line.startswith("+") and not line.startswith("+++")] == [
        "+    landed = torch.cuda.Event()",
        "+        landed.synchronize()",
        "+            landed.record()",
    ]
    assert not [line for line in said if line.startswith("-") and not line.startswith("---")]


@needs_cuda_torch
def test_a_program_with_the_edge_has_no_conflict(tmp_path: Path) -> None:
    repaired = with_edge(LOADER.read_text(), record=15, wait=13, is_host=True)
    (tmp_path / "loader.py").write_text(repaired)
    done = run_command("torch", "run", "loader.py", cwd=tmp_path, warmth=Warmth.PROGRAMS)
    assert (done.returncode, "no conflict in" in done.stderr) == (0, True), done.stderr


def test_a_stream_waits_where_the_second_access_is_its_own() -> None:
    text = "import torch\ndef f():\n    a.copy_(b)\n    c.copy_(\n        a)\nf()"
    assert with_edge(text, record=3, wait=5, is_host=False) == (
        "import torch\ndef f():\n    landed = torch.cuda.Event()\n    a.copy_(b)\n"
        "    landed.record()\n    landed.wait()\n    c.copy_(\n        a)\nf()\n"
    )


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    text = with_edge("landed = 1\nlanded_2 = 2\n", record=1, wait=2, is_host=True)
    assert "landed_3.record()" in text


@pytest.mark.parametrize(
    "race",
    [
        race_in(LOADER, 15, 15),
        race_in(LOADER, 15, 12),
        race_in(LOADER.with_name("gone.py"), 15, 13),
        race_in(LOADER, 15, 13, hazard=Hazard.REUSE),
        race_in(LOADER, 15, 1000),
    ],
    ids=["one statement", "a loop", "no file", "reuse", "no line"],
)
def test_what_cannot_be_written_so_is_not(race: Race) -> None:
    assert repair_of(race) == ""


PACKAGE = {
    "loads.py": "import torch\n\n\ndef load(a, b):\n    return b.copy_(a, non_blocking=True)\n",
    "fills.py": "def fill(a):\n    a.fill_(1.0)\n",
}


def race_between(folder: Path, record: int, wait: int) -> Race:
    """The stream of `load` reads what the host then fills, in another module of a package."""
    (folder / "pkg").mkdir()
    for name, text in {"__init__.py": "", **PACKAGE}.items():
        (folder / "pkg" / name).write_text(text)
    race = race_in(folder / "pkg" / "loads.py", record, wait)
    other = ((str(folder / "pkg" / "fills.py"), wait, "fill"),)
    return msgspec.structs.replace(race, second=msgspec.structs.replace(race.second, stack=other))


def test_two_modules_of_a_package_share_the_event(tmp_path: Path) -> None:
    race = race_between(tmp_path, 5, 2)
    loads, fills = repaired_sources(race).values()
    assert loads == (
        "import torch\n\n\nlanded = torch.cuda.Event()\ndef load(a, b):\n"
        "    returned = b.copy_(a, non_blocking=True)\n    landed.record()\n    return returned\n"
    )
    assert fills == (
        "def fill(a):\n    from pkg.loads import landed\n    landed.synchronize()\n"
        "    a.fill_(1.0)\n"
    )
    said = repair_of(race)
    assert said.count("+++ ") == 2
    assert "-    return b.copy_(a, non_blocking=True)\n" in said


def test_two_scripts_share_no_event(tmp_path: Path) -> None:
    race = race_between(tmp_path, 5, 2)
    (tmp_path / "pkg" / "__init__.py").unlink()
    assert repair_of(race) == ""


def test_two_functions_of_a_module_share_its_event() -> None:
    text = "import numpy\ndef f(a):\n    a.copy_(b)\n@cache\ndef g(a):\n    a.fill_(1)\n"
    assert with_edge_of_module(text, record=6, wait=3, is_host=True) == (
        "import numpy\nimport torch\nlanded = torch.cuda.Event()\ndef f(a):\n"
        "    landed.synchronize()\n    a.copy_(b)\n@cache\ndef g(a):\n    a.fill_(1)\n"
        "    landed.record()\n"
    )


@given(st.data())
def test_what_is_added_is_lines_alone_and_python_still(data: st.DataObject) -> None:
    """Of any two lines of a source: refused, or the same source with three more lines, and with a
    returned value by name.
    """
    source = "import torch\n" + (ROOT / "tests" / "helpers" / "browsing.py").read_text()
    lines = source.splitlines()
    number = st.integers(1, len(lines))
    try:
        text = with_edge(source, record=data.draw(number), wait=data.draw(number), is_host=True)
    except ValueError:
        return
    ast.parse(text)
    left = [line for line in text.splitlines() if not line.strip().startswith("landed")]
    assert len(text.splitlines()) == len(left) + 3
    named = [line for line in left if line.strip() != "return returned"]
    assert [line.replace("returned =", "return") for line in named] == lines


def test_a_relative_name_in_a_package_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert from_here("script.py") == "script.py"


def test_a_module_is_named_with_the_namespace_that_it_is_in(tmp_path: Path) -> None:
    """A namespace's folder has no `__init__.py`: where packages are installed it is known."""
    for folder in ("site-packages", "checkout"):
        package = tmp_path / folder / "vendor" / "core"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    assert module_of(tmp_path / "site-packages" / "vendor" / "core" / "x.py") == "vendor.core.x"
    assert module_of(tmp_path / "checkout" / "vendor" / "core" / "x.py") == "core.x"
    with pytest.raises(ValueError, match="is in no package"):
        module_of(tmp_path / "x.py")
