"""Revisions of a checkout, one after the other in a worktree of their own, in a temporary folder.

What is checked out there runs; the checkout itself, its index and its hooks are left alone.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from racegate.scenario.errors import BadInputError, BrokenHarnessError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.text import quoted


class RevisionError(BadInputError):
    """A folder that is no checkout, or a revision that there is not, or not where it should be."""


class Revision(StrictStruct, frozen=True, kw_only=True):
    """One of a repository.

    commit: its full name; subject: the first line of what its author said"""

    commit: str
    subject: str

    @property
    def short(self) -> str:
        """As people write it."""
        return self.commit[:12]


class Checkout:
    """A repository with a worktree. Raises RevisionError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._git("rev-parse", "--git-dir")

    def revision(self, name: str) -> Revision:
        """By whatever git takes for one. Raises RevisionError."""
        commit = self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return self._revision(commit.strip())

    def between(self, good: Revision, bad: Revision) -> list[Revision]:
        """From one to the other along first parents: a branch that was merged counts as its merge.

        Raises RevisionError if the one does not lie before the other.
        """
        span = f"{good.commit}..{bad.commit}"
        listed = self._git("rev-list", "--reverse", "--first-parent", "--parents", span)
        lines = [line.split() for line in listed.splitlines()]
        if not lines or good.commit not in lines[0][1:2]:
            raise RevisionError(
                f"{good.short} does not lie before {bad.short} along first parents: name one that "
                "does, such as `git merge-base` of both"
            )
        return [good, *(self._revision(line[0]) for line in lines)]

    def _revision(self, commit: str) -> Revision:
        subject = self._git("show", "--no-patch", "--format=%s", commit)
        return Revision(commit=commit, subject=subject.rstrip("\n"))

    @contextmanager
    def worktree(self) -> Iterator[Path]:
        """A folder in which revisions are checked out, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="racegate-bisect-") as folder:
            tree = Path(folder) / "tree"
            self._git("worktree", "add", "--detach", "--no-checkout", str(tree), "HEAD")
            try:
                yield tree
            finally:
                self._git("worktree", "remove", "--force", "--force", str(tree))

    def check_out(self, tree: Path, revision: Revision) -> None:
        """Makes the worktree that revision. Raises BrokenHarnessError."""
        try:
            git(tree, "checkout", "--force", "--detach", revision.commit)
            git(tree, "clean", "-ffdx")
        except subprocess.CalledProcessError as error:
            raise BrokenHarnessError(
                f"git cannot check out {revision.short}: {_said(error)}"
            ) from error

    def _git(self, *arguments: str) -> str:
        try:
            return git(self._folder, *arguments)
        except subprocess.CalledProcessError as error:
            raise RevisionError(f"{self._folder}: git says: {_said(error)}") from error
        except OSError as error:
            raise RevisionError(f"git cannot be run: {error}") from error


def git(folder: Path, *arguments: str) -> str:
    """What git says there. Nobody's hooks run, and no variable leads it elsewhere."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ("git", "-c", f"core.hooksPath={os.devnull}", "-C", str(folder), *arguments)
    done = subprocess.run(
        command, env=plain, capture_output=True, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.decode(errors="replace")


def _said(error: subprocess.CalledProcessError) -> str:
    lines = error.stderr.decode(errors="replace").strip().splitlines()
    return quoted(lines[-1] if lines else f"code {error.returncode}")
