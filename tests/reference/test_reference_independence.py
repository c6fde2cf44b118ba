"""The reference is an oracle only as long as it shares no code with what it judges."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import racegate_reference

ALLOWED = {
    "racegate.scenario.spec",
    "racegate.scenario.settings",
    "racegate.history.observe",
    "numpy",
    "msgspec",
}
SOURCES = sorted(Path(racegate_reference.__file__).parent.rglob("*.py"))


def imported_modules(source: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.name}: relative import"
            assert node.module is not None
            # `from racegate import x` imports racegate.x.
            names = [alias.name for alias in node.names] if node.module == "racegate" else []
            modules.update([f"racegate.{name}" for name in names] or [node.module])
    return modules


def test_the_reference_imports_only_types_numpy_and_the_standard_library() -> None:
    assert len(SOURCES) > 10
    for source in SOURCES:
        foreign = {
            module
            for module in imported_modules(source)
            if module not in ALLOWED
            and module.split(".")[0] not in {"racegate_reference", *sys.stdlib_module_names}
            and module.split(".")[0] != "numpy"
        }
        assert not foreign, f"{source.name} imports {sorted(foreign)}"


def test_nothing_is_imported_behind_the_parser() -> None:
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        assert "importlib" not in text and "__import__" not in text, source.name
