"""Findings that somebody looked at and lets stand: a TOML file of signatures with reasons."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput
from racegate.interpose.judge import Suppression
from racegate.scenario.strict import StrictStruct

_SIGNATURE = re.compile(r"[0-9a-f]{12}")


class SuppressionFile(StrictStruct, frozen=True, kw_only=True):
    """suppression: one table each"""

    suppression: tuple[Suppression, ...] = ()


def load_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Raises BadInput with the file and the reason."""
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=SuppressionFile).suppression
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    for number, one in enumerate(found, start=1):
        if not _SIGNATURE.fullmatch(one.signature):
            text = (
                f"suppression {number}: {one.signature!r} is no signature: 12 digits of a finding"
            )
            raise BadInput(f"{path}: {text}")
        if not one.reason.strip():
            raise BadInput(f"{path}: suppression {one.signature}: the reason is missing")
    for signature, count in Counter(one.signature for one in found).items():
        if count > 1:
            raise BadInput(f"{path}: {signature} is suppressed {count} times")
    return found
