"""What can be done on this machine, and what to do about what cannot: as data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from racegate.interpose.build import build_library, find_toolkit
from racegate.order.native.compiler import find_compiler
from racegate.scenario.errors import BadInputError


class Health(StrEnum):
    """How something is.

    OK: it can be used
    ABSENT: it is not there, and what needs it says so
    WRONG: it is there and cannot be believed
    """

    OK = "ok"
    ABSENT = "absent"
    WRONG = "wrong"


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at.

    subject: what; health: how it is; said: what was found; advice: what to do, empty if nothing
    """

    subject: str
    health: Health
    said: str
    advice: str = ""


def toolkit_facts() -> Mapping[str, str]:
    """What programs on the virtual CUDA device are run with; built if it is not there yet. Raises
    BadInput with what to do.
    """
    toolkit = find_toolkit()
    return {
        "torch": toolkit.torch_version,
        "cuda": f"{toolkit.version // 1000}.{toolkit.version % 1000 // 10}",
        "compiler": shlex.join(find_compiler()),
        "runtime": str(build_library(toolkit)),
    }


def check_programs() -> Checkup:
    """Whether `racegate torch run` can be used."""
    subject = "programs on the virtual CUDA device"
    try:
        facts = toolkit_facts()
    except BadInputError as error:
        return Checkup(
            subject=subject, health=Health.ABSENT, said="they cannot be run", advice=str(error)
        )
    said = f"torch {facts['torch']}, CUDA {facts['cuda']}, compiler {facts['compiler']}"
    return Checkup(subject=subject, health=Health.OK, said=said)
