"""A fleet file: which targets, and what is drawn for all of them. Strict to read."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from racegate.jobs.foreign.draws import ScenarioDraw
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, decode_toml, read_text
from racegate.scenario.untrusted.text import quoted
from racegate.targets.adapters.witness import AdapterSubject
from racegate.targets.program.workflow.witness import ProgramSubject
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.sglang.wire import ModelKind
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

FILE_BYTES_MAX = 1 << 20
# A folder and a key of a store are called so.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class FleetError(BadInputError):
    """A fleet file that cannot be used: names the file, the target and the reason."""


class TargetDevice(StrEnum):
    """Where racegate's own engine runs."""

    VIRTUAL = "virtual"
    GPU = "gpu"


class RevisionTarget(StrictStruct, frozen=True, kw_only=True):
    """racegate's own engine as a revision has it. checkout: the folder of its repository"""

    name: Name
    revision: Text
    checkout: Text = "."

    @property
    def title(self) -> str:
        """In words, and what tells it from another target of the same name."""
        return f"revision {self.revision}"


class DeviceTarget(StrictStruct, frozen=True, kw_only=True):
    """racegate's own engine as it is installed, on a device."""

    name: Name
    device: TargetDevice

    @property
    def title(self) -> str:
        return f"device {self.device}"


class AdapterTarget(StrictStruct, frozen=True, kw_only=True):
    """An engine behind an adapter. adapter: the command that starts it; folder: where"""

    name: Name
    adapter: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    folder: Text = "."

    @property
    def subject(self) -> AdapterSubject:
        """What is judged, on the first device that it offers."""
        return AdapterSubject(command=self.adapter, device="", folder=self.folder)

    @property
    def title(self) -> str:
        return f"adapter {shlex.join(self.adapter)}"


class VllmTarget(StrictStruct, frozen=True, kw_only=True):
    """A release of vLLM that is set up. runner, cache_mode: as of `racegate vllm`"""

    name: Name
    vllm: Text
    runner: ModelRunner = ModelRunner.V1
    cache_mode: StateMode = StateMode.NONE

    @property
    def subject(self) -> Cell:
        """What is judged."""
        return Cell(release=self.vllm, runner=self.runner, mode=self.cache_mode)

    @property
    def title(self) -> str:
        return self.subject.title


class SglangTarget(StrictStruct, frozen=True, kw_only=True):
    """A release of SGLang that is set up. model: as of `racegate sglang`"""

    name: Name
    sglang: Text
    model: ModelKind = ModelKind.HYBRID

    @property
    def subject(self) -> SchedulerCell:
        return SchedulerCell(release=self.sglang, model=self.model)

    @property
    def title(self) -> str:
        return self.subject.title


class PythonTarget(StrictStruct, frozen=True, kw_only=True):
    """A program. program: the script, as from the file's folder, or `-m` and a module, with its
    arguments, among which {seed} is the number of the scenario
    """

    name: Name
    program: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]

    @property
    def subject(self) -> ProgramSubject:
        return ProgramSubject(argv=self.program, compiling=None)

    @property
    def title(self) -> str:
        return f"program {shlex.join(self.program)}"


OwnTarget: TypeAlias = RevisionTarget | DeviceTarget
ForeignTarget: TypeAlias = AdapterTarget | PythonTarget | VllmTarget | SglangTarget
Target: TypeAlias = OwnTarget | ForeignTarget
# By the key that only it has.
KINDS: Mapping[str, type[Target]] = {
    "revision": RevisionTarget,
    "device": DeviceTarget,
    "adapter": AdapterTarget,
    "program": PythonTarget,
    "vllm": VllmTarget,
    "sglang": SglangTarget,
}
RELEASES = (VllmTarget, SglangTarget)


class FleetFile(StrictStruct, frozen=True, kw_only=True):
    """What a fleet is of. draw: what scenarios are drawn for every target"""

    draw: ScenarioDraw = ScenarioDraw.ENGINE
    targets: tuple[Target, ...]


class _Written(StrictStruct, frozen=True, kw_only=True):
    """The file as it is written."""

    schema: Literal[1]
    draw: ScenarioDraw = ScenarioDraw.ENGINE
    targets: Annotated[tuple[dict[str, object], ...], msgspec.Meta(min_length=1, max_length=64)]


def load_fleet(path: Path) -> FleetFile:
    """Paths in the file are relative to its folder. Raises FleetError."""
    try:
        written = msgspec.convert(decode_toml(read_text(path, FILE_BYTES_MAX)), _Written)
        targets = tuple(
            _target(raw, f"$.targets[{number}]") for number, raw in enumerate(written.targets)
        )
    except (ReadError, msgspec.ValidationError) as error:
        raise FleetError(f"{path}: {error}") from error
    twice = [name for name, count in Counter(each.name for each in targets).items() if count > 1]
    if twice:
        raise FleetError(f"{path}: two targets have the name {quoted(twice[0])}")
    releases = [each.name for each in targets if isinstance(each, RELEASES)]
    if releases and written.draw not in (ScenarioDraw.REQUESTS, ScenarioDraw.FEATURES):
        raise FleetError(
            f"{path}: {releases[0]} is a release, which runs requests alone: "
            f'write draw = "{ScenarioDraw.REQUESTS}"'
        )
    return FleetFile(
        draw=written.draw, targets=tuple(_placed(each, path.parent) for each in targets)
    )


def _target(raw: Mapping[str, object], where: str) -> Target:
    """Raises msgspec.ValidationError."""
    kinds = [kind for key, kind in KINDS.items() if key in raw]
    if len(kinds) != 1:
        raise msgspec.ValidationError(
            f"Expected one of the keys {', '.join(KINDS)}, got {len(kinds)} - at `{where}`"
        )
    try:
        return msgspec.convert(raw, kinds[0])
    except msgspec.ValidationError as error:
        said = re.sub(r" - at `\$(.*)`$", "", str(error))
        raise msgspec.ValidationError(f"{said} - at `{where}{_path(error)}`") from error


def _path(error: msgspec.ValidationError) -> str:
    found = re.search(r" - at `\$(.*)`$", str(error))
    return found[1] if found else ""


def _placed(target: Target, folder: Path) -> Target:
    """With its folder where the file means it, on every worker."""
    match target:
        case RevisionTarget(checkout=given):
            return msgspec.structs.replace(target, checkout=str((folder / given).resolve()))
        case AdapterTarget(folder=given):
            return msgspec.structs.replace(target, folder=str((folder / given).resolve()))
        case PythonTarget(program=(script, *arguments)) if script != "-m":
            placed = str((folder / script).resolve())
            return msgspec.structs.replace(target, program=(placed, *arguments))
    return target
