"""Files that are written whole or not at all, and places that are tried before hours of work."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """A file with this content, or what was there before: a kill or a full disk leaves no half of
    it. What is no regular file (a pipe, a device) is written as it is. Raises OSError.
    """
    if _is_special(path):
        path.write_bytes(content)
        return
    beside = _beside(path)
    try:
        beside.write_bytes(content)
        beside.replace(path.resolve())
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def check_writable(path: Path) -> None:
    """Raises OSError if a file could not be written here now."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if _is_special(path):
        return
    beside = _beside(path)
    beside.write_bytes(b"")
    beside.unlink()


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    """In the same folder: only there a rename is whole. Behind a link: where it leads."""
    real = path.resolve()
    return real.with_name(f".{real.name[:100]}.{os.getpid()}")
