"""The litmus programs state what they are, come in pairs, and need no CUDA to be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from litmus import table
from litmus.registry import Expected, Observe, Program, Registry, load

from together import failures

FOLDER = Path(__file__).parent / "litmus"
MODULES = sorted(FOLDER.glob("*.py"))
PROGRAMS = load()


def _program(name: str) -> Program:
    return Program(name, "pair", Expected.SILENT, False, "theme", lambda: None)


def test_at_least_sixty_programs() -> None:
    assert len(PROGRAMS) >= 60


def test_every_racy_program_has_a_repaired_twin_and_every_silent_one_a_racy() -> None:
    pairs: dict[str, set[Expected]] = defaultdict(set)
    for program in PROGRAMS.values():
        pairs[program.pair].add(program.expected)
    assert not [pair for pair, expected in pairs.items() if expected != set(Expected)]


def test_a_pair_stays_in_one_theme() -> None:
    themes: dict[str, set[str]] = defaultdict(set)
    for program in PROGRAMS.values():
        themes[program.pair].add(program.theme)
    assert not [pair for pair, found in themes.items() if len(found) > 1]


def test_two_programs_cannot_share_a_name() -> None:
    registry = Registry()
    registry.add(_program("same"))
    with pytest.raises(ValueError, match="two litmus programs are called same"):
        registry.add(_program("same"))


def test_every_program_says_what_it_is() -> None:
    assert failures(_says_what_it_is, PROGRAMS) == []


def _says_what_it_is(name: str) -> None:
    program = PROGRAMS[name]
    assert program.summary.endswith(".")
    assert program.run.__name__ == name
    assert not (program.observable and program.expected is Expected.SILENT)


def test_program_texts_differ() -> None:
    by_text: dict[str, list[str]] = defaultdict(list)
    for program in PROGRAMS.values():
        by_text[f"{program.pair}: {program.summary}"].append(program.name)
    assert not [names for names in by_text.values() if len(names) > 1]


def _calls(node: ast.AST, name: str) -> bool:
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
        for call in ast.walk(node)
    )


def test_every_program_observes_and_takes_no_arguments() -> None:
    assert failures(_observes_and_takes_no_arguments, MODULES) == []


def _observes_and_takes_no_arguments(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name in PROGRAMS:
            assert _calls(node, "observe"), node.name
            assert not ast.unparse(node.args), node.name


def test_files_stay_small() -> None:
    assert [path for path in MODULES if len(path.read_text().splitlines()) > 400] == []


def test_observe_returns_its_value_and_passes_it_on() -> None:
    observe, seen = Observe(), []
    assert observe("unbound", 1) == 1
    observe.bound = lambda name, value: seen.append((name, value))
    assert observe("total", 2) == 2
    assert seen == [("total", 2)]


def test_readme_is_up_to_date() -> None:
    assert table.README.read_text() == table.render(PROGRAMS)


def test_import_starts_no_cuda() -> None:
    code = (
        "import torch; from litmus.registry import load; load(); "
        "raise SystemExit(torch.cuda.is_initialized())"
    )
    subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parent, check=True, timeout=120)
