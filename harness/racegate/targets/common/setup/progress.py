"""A command of an installation, and what it is doing meanwhile: so many bytes, since when."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from racegate.interpose.errors import BadInput

LOOK_S = 10.0
SAID_MAX = 100
_DOING = ("Collecting", "Downloading", "Using cached", "Building", "Installing", "Successfully")
_MB = 1_000_000
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WatchedCommand:
    """Runs commands of an installation. say: is told every few seconds how far it is

    folder: in which what is installed and downloaded grows; look_s: seconds between two looks
    """

    say: Say
    folder: Path
    look_s: float = LOOK_S

    def __call__(self, command: Sequence[str]) -> None:
        """Runs one. What it downloads lies below the folder, too. Raises BadInput with the end of
        what it said, if it fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        before, begun = bytes_in(self.folder), time.monotonic()
        with TemporaryDirectory(prefix="downloading-", dir=self.folder) as temporary:
            said, failed = Path(temporary, "said.txt"), Path(temporary, "failed.txt")
            with said.open("wb") as out, failed.open("wb") as errors:
                variables = {**os.environ, "TMPDIR": temporary}
                process = subprocess.Popen(command, stdout=out, stderr=errors, env=variables)
                try:
                    while (code := self._ended(process)) is None:
                        more = max(0, bytes_in(self.folder) - before)
                        self.say(progress_line(_text_of(said), more, time.monotonic() - begun))
                finally:
                    process.kill()  # of a command that has ended, nothing
                    process.wait()
            if code:
                raise BadInput(failure_text(command, _text_of(failed)))

    def _ended(self, process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(self.look_s)
        except subprocess.TimeoutExpired:
            return None


def progress_line(said: str, more_bytes: int, seconds: float) -> str:
    """What the command does, by the last line of it that tells, and what has come of it.

    more_bytes: that there are more than when it began
    """
    lines = [line.strip() for line in said.splitlines()]
    doing = next((line for line in reversed(lines) if line.startswith(_DOING)), "")
    counts = f"{more_bytes // _MB} MB more on disk, {seconds:.0f} s"
    return f"    {counts}: {doing[:SAID_MAX]}" if doing else f"    {counts}"


def failure_text(command: Sequence[str], errors: str) -> str:
    """Which command failed, and the end of what it said."""
    said = "\n  ".join(errors.strip().splitlines()[-8:])
    return f"{' '.join(command[:6])} ... failed:\n  {said}"


def bytes_in(folder: Path) -> int:
    """Of all files below a folder, while others come and go."""
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(Path(entry.path))
                else:
                    yield entry.stat(follow_symlinks=False).st_size


def _text_of(path: Path) -> str:
    return path.read_text(errors="replace")
