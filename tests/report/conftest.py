"""What tests of pages share: one browser, and one site of reports with a few witnesses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from browsing import started
from pictured import path_of
from racegate.cli.app import app
from repository import ROOT

SHOWN = ("accepted-copy-after-row-move", "slot-vs-row-index")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from started(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed reports as a site, and what the command said of it beside."""
    folder = tmp_path_factory.mktemp("site")
    witnesses = folder / "witnesses"
    witnesses.mkdir()
    for name in SHOWN:
        shutil.copy(path_of(name), witnesses)
    words = ["report", str(ROOT / "reports"), "--site", str(folder / "site")]
    words += ["--witnesses", str(witnesses), "--json", str(folder / "said.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return folder / "site"
