"""What is asked before anything is downloaded: whether a release is one that was tried, and whether
there is room for it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from racegate.interpose.errors import BadInput

TORCH_GB = 5.0  # a CUDA build with what it needs
RELEASE_GB = 1.0  # its wheel, its Python, and what that imports
_GB = 1e9
Version = tuple[int, ...]


def version_of(text: str) -> Version:
    """As it is compared: the numbers of `0.5.12.post1`."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def check_tried(title: str, release: str, tried: tuple[str, str]) -> None:
    """tried: the oldest and the newest release that was. Raises BadInput for any beyond."""
    oldest, newest = map(version_of, tried)
    if oldest <= version_of(release) <= newest:
        return
    raise BadInput(
        f"{title} {release} was never tried: {tried[0]} to {tried[1]} were, and others may not "
        "start. Nothing was downloaded; --untried sets it up all the same, and a checkout runs in "
        "the environment of the nearest release (--path)"
    )


def room_text(folder: Path, needed_gb: float, what: str) -> str:
    """How much disk something takes, and how much there is. Raises BadInput if it is too little.

    folder: where it goes, whether it is there or not
    """
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free_gb = shutil.disk_usage(there).free / _GB
    text = f"{what} takes about {needed_gb:g} GB in {folder}, where {free_gb:.1f} GB are free"
    if free_gb < needed_gb:
        raise BadInput(f"{text}: make room, or set XDG_CACHE_HOME to another disk")
    return text
