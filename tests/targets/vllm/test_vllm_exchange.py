"""Other code in the place of an imported function's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from racegate.targets.common.inside.exchange import exchange_code

BEFORE = """\
LIMIT = 1


class Batch:
    def swap(self, rows):
        rows[0], rows[1] = (
            rows[1],
            rows[0],
        )
        return rows

    def size(self, rows):
        return len(rows)


def count(rows):
    return sum(rows)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """The source above, imported."""
    path = tmp_path / "batch.py"
    path.write_text(BEFORE)
    spec = importlib.util.spec_from_file_location("batch", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def exchanged(module: ModuleType, old: str, new: str) -> list[str]:
    after = BEFORE.replace(old, new, 1).encode()
    return [one.__qualname__ for one in exchange_code(module, BEFORE.encode(), after)]


def test_a_function_has_other_code_though_lines_below_it_have_moved(module: ModuleType) -> None:
    batch = module.Batch()
    shorter = "rows[0], rows[1] = (\n            rows[1],\n            rows[0],\n        )"
    assert exchanged(module, shorter, "rows[0] = rows[1]") == ["Batch.swap"]
    assert batch.swap([1, 2]) == [2, 2]
    assert (batch.size([1, 2]), module.count([1, 2])) == (2, 3)


def test_what_an_import_does_or_two_functions_is_not_exchanged(module: ModuleType) -> None:
    assert exchanged(module, "LIMIT = 1", "LIMIT = 2") == []
    both = "return len(rows)\n\n\ndef count(rows):\n    return sum(rows)"
    assert exchanged(module, both, "return 0\n\n\ndef count(rows):\n    return 0") == []
    assert module.Batch().swap([1, 2]) == [2, 1]
