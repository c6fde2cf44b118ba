"""The scripts, witnesses and documents that come with racegate: package data of a wheel, and in a
checkout the folders that they are made from.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = _PACKAGE.parents[1]


def shipped_scripts() -> Path:
    """The folder of the scripts; their witnesses lie in `witnesses` below it."""
    installed = _PACKAGE / "scripts"
    return installed if installed.is_dir() else _CHECKOUT / "scenarios"


def shipped_examples() -> Path:
    """The folder of the files that pages show."""
    return _docs() / "examples"


def _docs() -> Path:
    installed = _PACKAGE / "docs"
    return installed if installed.is_dir() else _CHECKOUT / "docs"


def shipped_docs() -> dict[str, Path]:
    """The pages of the documents by their names, the README first."""
    folder = _docs()
    readme = (folder if folder.parent == _PACKAGE else _CHECKOUT) / "README.md"
    pages = {path.stem: path for path in sorted(folder.glob("*.md")) if path != readme}
    return {"readme": readme, **pages}
