"""What a change is compared with: each scenario on the base, kept by the content of all that
decides it, so that the base is run once and not with every change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from racegate.jobs.foreign.beside import ComparedRun, compared_run
from racegate.jobs.foreign.releases import ReleaseCell, ReopenedEngine, kind_of
from racegate.scenario.spec import Scenario
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.targets.common.environment import cache_folder
from racegate.targets.common.result import result_of

FILE_BYTES_MAX = 1 << 28
_RACEGATE = Path(__file__).parents[2]
_SOURCES = ("*.py", "*.c", "*.h")


@dataclass(frozen=True, slots=True)
class Bases:
    """Scenarios on a base. engine: which is started if something is not kept, and is the caller's
    to end; content: of all that it is, from `content_of`

    settings: what else decides what is found; folder: where it is kept
    """

    engine: ReopenedEngine
    content: str
    settings: tuple[object, ...] = ()
    folder: Path = field(default_factory=lambda: cache_folder("bases"))

    def of(self, scenario: Scenario) -> ComparedRun:
        """One scenario. Raises BadInputError if the engine does not start."""
        place = self.folder / f"{self._key(scenario)}.json"
        if (kept := _read(place)) is not None:
            return kept
        judged = self.engine.judge(scenario)
        made = compared_run(judged, result_of(judged, f"{scenario.name}.toml"))
        if not made.result.is_lost:  # another run may say more
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(place, made)
        return made

    def _key(self, scenario: Scenario) -> str:
        cell = msgspec.structs.replace(self.engine.cell, checkout=None)
        decides = (self.content, cell, scenario, self.settings)
        return hashlib.sha256(msgspec.json.encode(decides)).hexdigest()[:32]


def content_of(cell: ReleaseCell) -> str:
    """A digest of racegate, of an engine, and of the torch that it is on."""
    packaging = kind_of(cell).packaging
    environment = packaging.environment_of(cell.release, checkout=cell.checkout)
    folders = [_RACEGATE]
    if environment.checkout is not None:
        folders.append(environment.package(packaging.module))
    digest = hashlib.sha256(environment.torch_version.encode())
    for folder in folders:
        for path in _sources(folder):
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for pattern in _SOURCES for path in folder.rglob(pattern)))


def _read(path: Path) -> ComparedRun | None:
    """What was kept, None if nothing was, or a racegate of another form did."""
    try:
        return msgspec.convert(read_json(path, FILE_BYTES_MAX), ComparedRun)
    except (ReadError, msgspec.ValidationError):
        return None


def base_cell(cell: ReleaseCell, against: str) -> ReleaseCell:
    """The base of a change. against: a release, or the folder of a checkout"""
    if Path(against).is_dir():
        return msgspec.structs.replace(cell, checkout=against)
    return msgspec.structs.replace(cell, release=against, checkout=None)
