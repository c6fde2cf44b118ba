"""What a change is compared with: each scenario on the base, kept by the content of all that
decides it, so that the base is run once and not with every change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from racegate.jobs.foreign.beside import BaseScenario, base_scenario
from racegate.jobs.foreign.releases import OpenedEngine, ReleaseCell, kind_of
from racegate.scenario.spec import Scenario
from racegate.scenario.untrusted.files import write_json
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.targets.common.environment import cache_folder
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.result import result_of

FILE_BYTES_MAX = 1 << 28
_RACEGATE = Path(__file__).parents[2]
_SOURCES = ("*.py", "*.c", "*.h")

Judge = Callable[[OpenedEngine, Scenario], ReleaseVerdict]


@dataclass(frozen=True, slots=True)
class Bases:
    """Scenarios on a base. cell: which engine; opened: starts it; judge: of one scenario on it

    settings: what else decides what is found; folder: where it is kept
    """

    cell: ReleaseCell
    opened: Callable[[], AbstractContextManager[OpenedEngine]]
    judge: Judge
    settings: tuple[object, ...] = ()
    folder: Path = field(default_factory=lambda: cache_folder("bases"))

    def judged(self, scenarios: Sequence[Scenario]) -> dict[str, BaseScenario]:
        """By name; the engine is started only if something is not kept. Raises BadInput."""
        content = self._content()
        places = {one.name: self.folder / f"{self._key(content, one)}.json" for one in scenarios}
        found = {name: kept for name, place in places.items() if (kept := _read(place)) is not None}
        missing = [one for one in scenarios if one.name not in found]
        if missing:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self.opened() as opened:
                for scenario in missing:
                    judged = self.judge(opened, scenario)
                    made = base_scenario(judged, result_of(judged, f"{scenario.name}.toml"))
                    found[scenario.name] = made
                    if not made.result.is_lost:  # another run may say more
                        write_json(places[scenario.name], made)
        return found

    def _content(self) -> str:
        """Of racegate, of the engine, and of the torch that it is on."""
        packaging = kind_of(self.cell).packaging
        environment = packaging.environment_of(self.cell.release, checkout=self.cell.checkout)
        folders = [_RACEGATE]
        if environment.checkout is not None:
            folders.append(environment.checkout / packaging.module)
        digest = hashlib.sha256(environment.torch_version.encode())
        for folder in folders:
            for path in _sources(folder):
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def _key(self, content: str, scenario: Scenario) -> str:
        cell = msgspec.structs.replace(self.cell, checkout=None)
        decides = (content, cell, scenario, self.settings)
        return hashlib.sha256(msgspec.json.encode(decides)).hexdigest()[:32]


def _sources(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for pattern in _SOURCES for path in folder.rglob(pattern)))


def _read(path: Path) -> BaseScenario | None:
    """What was kept, None if nothing was, or a racegate of another form did."""
    try:
        return msgspec.convert(read_json(path, FILE_BYTES_MAX), BaseScenario)
    except (ReadError, msgspec.ValidationError):
        return None


def base_cell(cell: ReleaseCell, against: str) -> ReleaseCell:
    """The base of a change. against: a release, or the folder of a checkout"""
    if Path(against).is_dir():
        return msgspec.structs.replace(cell, checkout=against)
    return msgspec.structs.replace(cell, release=against, checkout=None)
