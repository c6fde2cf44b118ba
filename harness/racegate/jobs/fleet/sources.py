"""The sources of a revision, in the user's cache directory: git writes them out of its store, so
that neither the checkout nor its index, its hooks or its worktrees are touched.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

from racegate.jobs.triage.checkout import Checkout, RevisionError, git
from racegate.jobs.triage.origin import SOURCES


def commit_of(checkout: Path, revision: str) -> str:
    """The full name of a revision. Raises RevisionError."""
    return Checkout(checkout).revision(revision).commit


def sources_of(checkout: Path, commit: str) -> str:
    """Where Python finds what a commit has. Raises RevisionError."""
    tree = _cache_folder() / commit
    if not tree.is_dir():
        _write(checkout, commit, tree)
    return os.pathsep.join(str(tree / each) for each in SOURCES)


def _write(checkout: Path, commit: str, tree: Path) -> None:
    """Whole or not at all, whoever else does the same."""
    Checkout(checkout)
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix=".") as folder:
        archive, new = Path(folder) / "sources.tar", Path(folder) / "tree"
        try:
            git(checkout, "archive", f"--output={archive}", commit, "--", *SOURCES)
        except (subprocess.CalledProcessError, OSError) as error:
            raise RevisionError(
                f"{checkout}: git writes no sources of {commit[:12]}: it is not there, or has no "
                f"{', '.join(SOURCES)}"
            ) from error
        with tarfile.open(archive) as packed:
            packed.extractall(new, filter="data")
        with suppress(OSError):  # somebody else was quicker
            new.rename(tree)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "racegate" / "revisions"
