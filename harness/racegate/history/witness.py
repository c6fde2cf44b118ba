"""Witness: one versioned JSON file that reproduces a finding. Strict to read: what is not
understood is refused.
"""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from racegate.history.finding import Verdict
from racegate.history.schedule import ScheduleError, parse_schedule
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario, ScenarioError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_whole
from racegate.scenario.untrusted.reading import ReadError, read_json
from racegate.scenario.untrusted.text import printable_json, quoted
from racegate.scenario.validation import validate
from racegate.version import __version__

SCHEMA = "racegate.witness/1"
WITNESS_BYTES_MAX = 1 << 22


class WitnessError(BadInputError):
    """A witness file that cannot be used: names the file and the reason."""


class Witness(StrictStruct, frozen=True, kw_only=True):
    """What is needed to see a finding again.

    title: in words; holds: as text; fault: the seeded fault, if any; device: where it was found
    seed: of the search that found it; signature, verdict: what a replay has to show
    digest: hash of everything the recorded run showed; versions: of what it ran on
    checksum: hash of all other fields, so that an altered file is noticed
    """

    schema: str
    title: str
    scenario: OwnScenario
    holds: tuple[str, ...]
    fault: str | None
    device: str
    seed: int
    signature: str
    verdict: Verdict
    digest: str
    versions: dict[str, str]
    checksum: str = ""


def versions() -> dict[str, str]:
    """Versions of what a run depends on."""
    return {
        "racegate": __version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "torch": _version_if_installed("torch"),
    }


def _version_if_installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def sealed(witness: Witness) -> Witness:
    """The witness with its checksum."""
    return msgspec.structs.replace(witness, checksum=checksum_of(msgspec.to_builtins(witness)))


def checksum_of(fields: dict[str, object]) -> str:
    """Of the fields as the file has them: a field that a later version adds changes no old file."""
    content = msgspec.json.encode({**fields, "checksum": ""}, order="sorted")
    return hashlib.sha256(content).hexdigest()


def save(witness: Witness, path: Path) -> None:
    """Writes the file whole or not at all: a kill leaves no half a witness."""
    write_whole(path, file_of(msgspec.json.encode(sealed(witness), order="deterministic")))


def file_of(encoded: bytes) -> bytes:
    """JSON as it stands in a file, for people too."""
    text = msgspec.json.format(encoded, indent=1).decode()
    return printable_json(text + "\n").encode()


def load_witness(path: Path) -> Witness:
    """The witness in a file. Raises WitnessError with the reason."""
    return witness_in(read_object(path), source=str(path))


def witness_in(raw: object, *, source: str) -> Witness:
    """The witness that JSON says, wherever it was read. Raises WitnessError with the reason."""
    if not isinstance(raw, dict) or "schema" not in raw:
        raise WitnessError(f"{source}: not a witness file: it has no schema")
    if raw["schema"] != SCHEMA:
        raise WitnessError(
            f"{source}: written as {quoted(raw['schema'])}, this racegate reads {SCHEMA!r}; use "
            "the version that wrote it, or record it again"
        )
    try:
        witness = msgspec.convert(raw, Witness)
        validate(witness.scenario, source=source)
        parse_schedule(list(witness.holds))
    except (msgspec.ValidationError, ScenarioError, ScheduleError) as error:
        raise WitnessError(f"{source}: {error}") from error
    check_sum(raw, source)
    return witness


def check_sum(raw: dict[str, object], source: Path | str) -> None:
    """Whether a file is as it was written. Raises WitnessError."""
    if raw.get("checksum", "") != checksum_of(raw):
        raise WitnessError(
            f"{source}: altered since it was written (its checksum does not fit); record it again"
        )


def read_object(path: Path) -> object:
    """What stands in a witness file, whatever its schema. Raises WitnessError."""
    try:
        return read_json(path, WITNESS_BYTES_MAX)
    except ReadError as error:
        raise WitnessError(f"{path}: cannot be read: {error}") from error


def load_witnesses(folder: Path) -> list[tuple[Path, Witness]]:
    """The witnesses of a folder. Raises WitnessError, also if there are none."""
    paths = sorted(folder.glob("*.witness.json"))
    if not paths:
        raise WitnessError(f"{folder}: no *.witness.json here: nothing that must fail")
    return [(path, load_witness(path)) for path in paths]
