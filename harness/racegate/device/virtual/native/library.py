"""The compiled core as a file: the library that came with the wheel, or else what a compiler makes.

Needs nothing but Python's own library: a build of a wheel asks it too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from racegate.order import native as order
from racegate.order.native.compiler import compiled

NATIVE = Path(__file__).parent
SOURCES = (NATIVE / "kernels.c", NATIVE / "walk.c")
NAME = "libracegate_engine.so"


def read_files() -> tuple[Path, ...]:
    """All that the compiler reads."""
    return (*SOURCES, *NATIVE.glob("*.h"), *Path(order.__path__[0]).glob("*.h"))


def shipped_name() -> str:
    """What a wheel calls the library: by its sources, so that one of other sources is not found."""
    digest = hashlib.sha256()
    for path in sorted(read_files(), key=lambda path: path.name):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"libracegate_engine-{digest.hexdigest()[:16]}.so"


def is_shipped() -> bool:
    """Whether the wheel brought it."""
    return (NATIVE / shipped_name()).is_file()


def core_library() -> Path:
    """Where it is, compiled now if it never was. Raises BadInput."""
    shipped = NATIVE / shipped_name()
    return shipped if shipped.is_file() else compiled(NAME, SOURCES, read=read_files())
