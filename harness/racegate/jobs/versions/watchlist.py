"""A watch file: which programs are judged on each new version of which packages. Strict to read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from racegate.jobs.fleet.targets import FILE_BYTES_MAX, Text
from racegate.scenario.errors import BadInputError
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, decode_toml, read_text
from racegate.scenario.untrusted.text import quoted

RUNS = 24  # under holds, of a program that does not say otherwise
# A store keeps a version by this name, a dash and the version.
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class WatchError(BadInputError):
    """A watch file that cannot be used: names the file, the program and the reason."""


class WatchedProgram(StrictStruct, frozen=True, kw_only=True):
    """A program and the package that it uses.

    name: in the store; program: the script, as from the file's folder, or `-m` and a module, with
        its arguments
    package: what pip calls it; beside: what else is installed, as pip writes it
    since: the first version that is judged; empty for the newest when the watch begins
    runs: under holds at most
    """

    name: Name
    program: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    package: Text
    beside: tuple[Text, ...] = ()
    since: str = ""
    runs: Annotated[int, msgspec.Meta(ge=1)] = RUNS


class _Written(StrictStruct, frozen=True, kw_only=True):
    """The file as it is written."""

    schema: Literal[1]
    programs: Annotated[tuple[WatchedProgram, ...], msgspec.Meta(min_length=1, max_length=256)]


def load_watch(path: Path) -> tuple[WatchedProgram, ...]:
    """The programs of a file. Raises WatchError."""
    try:
        written = msgspec.convert(decode_toml(read_text(path, FILE_BYTES_MAX)), _Written)
    except (ReadError, msgspec.ValidationError) as error:
        raise WatchError(f"{path}: {error}") from error
    counts = Counter(each.name for each in written.programs)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise WatchError(f"{path}: two programs have the name {quoted(twice[0])}")
    return written.programs
