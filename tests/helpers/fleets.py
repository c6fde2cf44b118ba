"""Targets of a fleet for tests: this checkout's sources as two revisions, one of them with a wait
that is missing, and the guide's toy runner as it is and with a wait that is sometimes missing.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from racegate.jobs.triage.checkout import git
from repository import ROOT

AUTHOR = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
# The host reads counts without waiting for their copy.
WAITING = "self._device.wait_host(self._landed, edges.VALID_COUNT_LANDED, step=step)"
TOY_WAITING = 'self.device.wait("count-landed", "count")'
TOY = ROOT / "docs" / "examples"


def two_revisions(folder: Path) -> Path:
    """A checkout with the tags `waiting` and `racing`."""
    for name in ("harness", "reference", "kernels"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet")
    _commit(folder, "waiting")
    _with(folder / "harness/racegate/engine/decode/valid_counts.py", WAITING, "pass")
    _commit(folder, "racing")
    return folder


def toys(folder: Path) -> tuple[Path, Path]:
    """Folders of the toy runner as it is, and of one that does not wait if there are four rows."""
    made = folder / "right", folder / "wrong"
    for one in made:
        shutil.copytree(TOY, one, ignore=shutil.ignore_patterns("__pycache__"))
    # The conformance kit asks for three rows at most.
    _with(made[1] / "toy_runner.py", TOY_WAITING, f"if len(self.rows) < 4: {TOY_WAITING}")
    return made


def fleet_file(folder: Path, *tables: str, draw: str = "requests") -> Path:
    """A file with these tables of targets."""
    text = "".join(f"\n[[targets]]\n{table}\n" for table in tables)
    path = folder / "fleet.toml"
    path.write_text(f'schema = 1\ndraw = "{draw}"\n{text}', encoding="utf-8")
    return path


def revision(name: str, checkout: Path) -> str:
    """The table of a revision, by its tag."""
    return f'name = "{name}"\nrevision = "{name}"\ncheckout = "{checkout}"'


def toy(name: str, folder: Path) -> str:
    """The table of the toy's adapter."""
    command = [sys.executable, "toy_adapter.py", "plain", "holds"]
    return f'name = "{name}"\nadapter = {command}\nfolder = "{folder}"'


def _commit(folder: Path, tag: str) -> None:
    git(folder, "add", ".")
    git(folder, *AUTHOR, "commit", "--quiet", "--message", tag)
    git(folder, "tag", tag)


def _with(file: Path, line: str, other: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(line) == 1
    file.write_text(text.replace(line, other), encoding="utf-8")
