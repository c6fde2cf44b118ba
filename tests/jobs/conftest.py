"""What tests of versions share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_package import wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in the place of an index, as pip's own settings name it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for version in ("1.0", "1.2", "1.10", "2.0b1"):
        wheel(folder, version, "")
    return folder
