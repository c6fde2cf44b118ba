"""A folder of finished waves: several calls, and several processes, add to one A/B run.

Every wave of every arm is a file of its own, written whole or not at all, so that a call that is
stopped loses only the wave it was at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from racegate.measure.ab.held import HeldRun
from racegate.measure.ab.waves import ArmWave, TruthWave
from racegate.measure.ab.workload import AbError, AbSpec, Arm
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, read_json

PLAN_FILE = "plan.json"
FOLDER_SCHEMA = "racegate.ab-folder/1"
WAVE_BYTES_MAX = 1 << 28

T = TypeVar("T")


class PlanFile(StrictStruct, frozen=True, kw_only=True):
    """What a folder belongs to."""

    schema: str
    plan: AbSpec


class Folder:
    """Finished waves of one plan."""

    def __init__(self, path: Path, plan: AbSpec) -> None:
        self.path = path
        self.plan = plan

    def truth(self, wave: int) -> TruthWave | None:
        """The truth of a wave, if it is known."""
        return self._read(self._wave_file(Arm.TRUTH, wave), TruthWave)

    def wave(self, arm: Arm, wave: int) -> ArmWave | None:
        """A wave of an arm, if it is finished."""
        return self._read(self._wave_file(arm, wave), ArmWave)

    def has(self, arm: Arm, wave: int) -> bool:
        """Whether a wave is finished."""
        return self._wave_file(arm, wave).exists()

    def arms(self) -> tuple[Arm, ...]:
        """The arms of which there is a wave, the truth excepted."""
        others = [arm for arm in Arm if arm is not Arm.TRUTH]
        return tuple(arm for arm in others if any(self._wave_file(arm, 0).parent.glob("*.json")))

    def waves(self, arm: Arm) -> Iterator[ArmWave]:
        """The finished waves of an arm."""
        for number in range(self.plan.waves):
            found = self.wave(arm, number)
            if found is not None:
                yield found

    def truths(self) -> Iterator[TruthWave]:
        """The waves whose truth is known."""
        for number in range(self.plan.waves):
            found = self.truth(number)
            if found is not None:
                yield found

    def held(self) -> tuple[HeldRun, ...]:
        """The held runs that have been made."""
        return tuple(
            run
            for arm in Arm
            if (run := self._read(self._held_file(arm.value), HeldRun)) is not None
        )

    def save_truth(self, wave: TruthWave) -> None:
        """Keeps the truth of a wave. Raises AbError."""
        _save(self._wave_file(Arm.TRUTH, wave.wave), wave)

    def save_wave(self, wave: ArmWave) -> None:
        """Keeps a wave of an arm. Raises AbError."""
        _save(self._wave_file(wave.arm, wave.wave), wave)

    def save_held(self, run: HeldRun) -> None:
        """Keeps the held run of a fault. Raises AbError."""
        _save(self._held_file(run.fault), run)

    def _wave_file(self, arm: Arm, wave: int) -> Path:
        return self.path / arm.value.replace("/", "+") / f"{wave:04}.json"

    def _held_file(self, fault: str) -> Path:
        return self.path / "held" / f"{fault}.json"

    def _read(self, path: Path, kind: type[T]) -> T | None:
        return _decoded(path, kind) if path.exists() else None


def open_folder(path: Path, plan: AbSpec) -> Folder:
    """The folder of a plan, made if it is not there. Raises AbError if it is another's."""
    file = path / PLAN_FILE
    if not file.exists():
        _save(file, PlanFile(schema=FOLDER_SCHEMA, plan=plan))
    known = read_folder(path).plan
    if known != plan:
        wanted, there = msgspec.to_builtins(plan), msgspec.to_builtins(known)
        changes = [
            f"{key} {there[key]}, not {wanted[key]}" for key in wanted if wanted[key] != there[key]
        ]
        raise AbError(f"{path} holds another A/B run ({'; '.join(changes)}): take another folder")
    return Folder(path, plan)


def read_folder(path: Path) -> Folder:
    """A folder and the plan it belongs to. Raises AbError."""
    file = path / PLAN_FILE
    if not file.exists():
        raise AbError(f"{path} holds no A/B run: it has no {PLAN_FILE}")
    found = _decoded(file, PlanFile)
    if found.schema != FOLDER_SCHEMA:
        raise AbError(f"{file}: written as {found.schema!r}, this racegate reads {FOLDER_SCHEMA!r}")
    return Folder(path, found.plan)


def missing(folder: Folder, arms: Sequence[Arm]) -> int:
    """Waves that these arms still lack."""
    return sum(not folder.has(arm, wave) for arm in arms for wave in range(folder.plan.waves))


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(read_json(path, WAVE_BYTES_MAX), kind)
    except (ReadError, msgspec.ValidationError) as error:
        raise AbError(f"{path}: cannot be read: {error}") from error


def _save(path: Path, value: object) -> None:
    """Whole or not at all, also beside other processes that write the same."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(msgspec.json.encode(value, order="deterministic") + b"\n")
        partial.replace(path)
    except OSError as error:
        raise AbError(f"{path}: cannot be written: {error}") from error
