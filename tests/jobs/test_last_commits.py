"""The last commit that changed what a file says is not one that laid it out anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

from racegate.jobs.environment import LAYOUT_COMMITS, last_commits


def commit(folder: Path, message: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    git = ("git", "-C", str(folder), *who)
    subprocess.run((*git, "add", "-A"), check=True)
    subprocess.run((*git, "commit", "-q", "-m", message), check=True)
    said = subprocess.run((*git, "rev-parse", "HEAD"), check=True, capture_output=True, text=True)
    return said.stdout.strip()


def test_a_commit_of_layout_alone_is_left_out(tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", str(tmp_path)), check=True)
    (tmp_path / "reports").mkdir()
    one, two = tmp_path / "reports" / "one.json", tmp_path / "reports" / "two.json"
    one.write_text("[1,\n2]\n")
    first = commit(tmp_path, "measured")
    one.write_text("[1, 2]\n")
    two.write_text("[3]\n")
    second = commit(tmp_path, "laid out")
    found = last_commits(tmp_path / "reports")
    assert second.startswith(found["one.json"]) and second.startswith(found["two.json"])
    (tmp_path / LAYOUT_COMMITS).write_text(f"# why\n{second}\n")
    found = last_commits(tmp_path / "reports")
    assert first.startswith(found["one.json"]) and "two.json" not in found
