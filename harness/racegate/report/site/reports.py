"""The folder of reports: its pages, its files of figures, and what each of these is of."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.report.objects import CommitKind, Evidence
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import (
    ReadError,
    decode_toml,
    read_bytes,
    read_json,
    read_text,
)

SOURCES = "sources.toml"
FILE_BYTES_MAX = 1 << 26
PAGE_BYTES_MAX = 1 << 22
FILES_MAX = 4_000

T = TypeVar("T")


class SiteError(BadInputError):
    """Reports of which no site can be made: says which file, and why."""


class SourceEntry(StrictStruct, frozen=True, kw_only=True):
    """Where files come from. files: a pattern, as a shell has it; command: what made them

    commit: of the run, where the file itself has none
    """

    files: str
    command: str
    commit: str = ""


class _Sources(StrictStruct, frozen=True, kw_only=True):
    source: tuple[SourceEntry, ...]


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of reports. pages: Markdown by its path; evidence: the files of figures"""

    folder: Path
    pages: dict[str, str]
    evidence: tuple[Evidence, ...]

    def has(self, file: str) -> bool:
        """Whether there is such a file of figures."""
        return any(one.file == file for one in self.evidence)

    def matching(self, pattern: str) -> list[str]:
        """The files of figures that fit a pattern."""
        return [one.file for one in self.evidence if fnmatchcase(one.file, pattern)]

    def content(self, file: str) -> bytes:
        """A file as it is. Raises SiteError."""
        try:
            return read_bytes(self.folder / file, FILE_BYTES_MAX)
        except ReadError as error:
            raise SiteError(f"{self.folder / file}: cannot be read: {error}") from error

    def read(self, file: str, kind: type[T]) -> T:
        """What of a file is shown. Raises SiteError."""
        return _read_as(self.folder / file, kind)


def load_reports(folder: Path, commits: Mapping[str, str]) -> Reports:
    """commits: file -> the last commit that changed it. Raises SiteError."""
    if not folder.is_dir():
        raise SiteError(f"{folder}: no folder of reports; name it before --site")
    files = _files(folder)
    entries = _entries(folder / SOURCES)
    pages = {file: _page(folder / file) for file in files if file.endswith(".md")}
    if not pages:
        raise SiteError(f"{folder}: holds no report (a Markdown page); name another folder")
    figures = [file for file in files if file.endswith((".json", ".toml")) and file != SOURCES]
    return Reports(
        folder=folder,
        pages=pages,
        evidence=tuple(_evidence(folder, file, entries, commits) for file in figures),
    )


def _files(folder: Path) -> list[str]:
    """Regular files below it: a link may lead out of it."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found.append(path.relative_to(folder).as_posix())
        if len(found) > FILES_MAX:
            raise SiteError(f"{folder}: more than {FILES_MAX} files; name the folder of reports")
    return sorted(found)


def _page(path: Path) -> str:
    try:
        return read_text(path, PAGE_BYTES_MAX)
    except ReadError as error:
        raise SiteError(f"{path}: cannot be read: {error}") from error


def _entries(path: Path) -> tuple[SourceEntry, ...]:
    """None of a folder that does not say it."""
    if not path.is_file():
        return ()
    try:
        return msgspec.convert(decode_toml(read_text(path, PAGE_BYTES_MAX)), _Sources).source
    except (ReadError, msgspec.ValidationError) as error:
        raise SiteError(f"{path}: cannot be read: {error}") from error


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What files of figures say of where they were measured."""

    environment: dict[str, str] = {}
    environments: tuple[dict[str, str], ...] = ()
    device: str = ""
    torch: str = ""
    gpu: str = ""


_SHOWN = ("gpu", "cpu", "cores", "device", "torch", "python")


def _evidence(
    folder: Path, file: str, entries: tuple[SourceEntry, ...], commits: Mapping[str, str]
) -> Evidence:
    known = next((one for one in entries if fnmatchcase(file, one.files)), None)
    said = _environment(folder / file)
    measured = said.get("commit") or ("" if known is None else known.commit)
    kind = CommitKind.MEASURED if measured else CommitKind.UNKNOWN
    if not measured and file in commits:
        kind = CommitKind.COMMITTED
    return Evidence(
        file=file,
        command="" if known is None else known.command,
        commit=measured or commits.get(file, ""),
        kind=kind,
        machine=", ".join(f"{name} {said[name]}" for name in _SHOWN if said.get(name)),
    )


def _environment(path: Path) -> Mapping[str, str]:
    """As far as a file has one. Raises SiteError for what is no JSON."""
    if path.suffix != ".json":
        return {}
    raw = _raw(path)
    try:
        head = msgspec.convert(raw, _Head)
    except msgspec.ValidationError:
        return {}  # a list, or words of its own: its page says it
    own = {name: text for name in ("device", "torch", "gpu") if (text := getattr(head, name))}
    first = head.environments[0] if head.environments else {}
    return own | first | head.environment


def _read_as(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(_raw(path), kind)
    except msgspec.ValidationError as error:
        raise SiteError(f"{path}: not what its page is made from: {error}") from error


def _raw(path: Path) -> object:
    try:
        return read_json(path, FILE_BYTES_MAX)
    except ReadError as error:
        raise SiteError(f"{path}: cannot be read: {error}") from error
