"""The files of the checkout, for tests about what they say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def files_of_checkout(pattern: str = "*") -> list[Path]:
    """Every file that git does not ignore, by a pattern of git's."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def named(path: Path) -> str:
    """A path as a reader of the checkout writes it."""
    return str(path.relative_to(ROOT))


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors_of(path: Path) -> set[str]:
    """The anchors of a Markdown file."""
    lines = path.read_text().splitlines()
    return {anchor_of(line.lstrip("#")) for line in lines if line.startswith("#")}
