"""From an installed wheel, away from any checkout: the demonstration, and the gate without scripts
of one's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from repository import ROOT
from support import NAMES

BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
COMMAND = "from racegate.cli.start import main; main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a wheel, as pip lays them out."""
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    zipfile.ZipFile(folder / made.stdout.split()[-1]).extractall(folder / "site")
    return folder / "site"


def racegate(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_race_is_found_drawn_and_repaired(installed: Path, tmp_path: Path) -> None:
    done = racegate(installed, tmp_path, "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [word for word in ("CONFLICT", "DIVERGENT", "PROVED") if word in done.stdout]
    assert verdicts == ["CONFLICT", "DIVERGENT", "PROVED"]
    assert "$ racegate explain racegate-demo/accepted-copy-after-row-move" in done.stdout
    page = (tmp_path / "racegate-demo" / "race.html").read_text()
    assert "accepted_counts_cpu" in page
    assert "host:condense@4" in page


def test_documents_come_along(installed: Path, tmp_path: Path) -> None:
    done = racegate(installed, tmp_path, "docs", "readme")
    assert done.stdout == (ROOT / "README.md").read_text()
    copied = racegate(installed, tmp_path, "docs", "--examples", "mine")
    names = {"loader.py", "toy.toml", "toy_adapter.py", "toy_runner.py"}
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {*names, "ci"}
    assert len(copied.stdout.splitlines()) == len(names) + 3
    again = racegate(installed, tmp_path, "docs", "--examples", "mine")
    assert (again.stdout, "mine/toy.toml is there already" in again.stderr) == ("", True)


def test_the_gate_has_scripts_and_witnesses_of_its_own(installed: Path, tmp_path: Path) -> None:
    done = racegate(installed, tmp_path, "gate", "--list", "--json", "gate.json")
    assert done.returncode == 0, done.stderr
    assert f"the scripts that come with racegate, from {installed}" in done.stderr
    listed = (tmp_path / "gate.json").read_text()
    assert all(f'"{name}"' in listed for name in NAMES)
    witnesses = sorted((ROOT / "scenarios" / "witnesses").glob("*.json"))
    assert all(f'"{path.name}"' in listed for path in witnesses)
