"""Findings that somebody looked at and lets stand: a TOML file of signatures with reasons."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput
from racegate.scenario.files import FILE_BYTES_MAX
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, decode_toml, read_text
from racegate.scenario.untrusted.shapes import refused
from racegate.scenario.untrusted.text import quoted
from racegate.targets.program.judge import Suppression

_SIGNATURE = re.compile(r"[0-9a-f]{12}")


class SuppressionFile(StrictStruct, frozen=True, kw_only=True):
    """suppression: one table each"""

    suppression: tuple[Suppression, ...] = ()


def load_suppressions(path: Path | None) -> tuple[Suppression, ...]:
    """None without a file. Raises BadInput with the file and the reason."""
    if path is None:
        return ()
    try:
        raw = decode_toml(read_text(path, FILE_BYTES_MAX))
        found = msgspec.convert(raw, SuppressionFile).suppression
    except ReadError as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    except msgspec.ValidationError as error:
        place, reason = refused(error, SuppressionFile)
        raise BadInput(f"{path}: {place}: {reason}") from None
    for number, one in enumerate(found, start=1):
        if not _SIGNATURE.fullmatch(one.signature):
            said = quoted(one.signature)
            text = f"suppression {number}: {said} is no signature: 12 digits of a finding"
            raise BadInput(f"{path}: {text}")
        if not one.reason.strip():
            raise BadInput(f"{path}: suppression {one.signature}: the reason is missing")
    for signature, count in Counter(one.signature for one in found).items():
        if count > 1:
            raise BadInput(f"{path}: {signature} is suppressed {count} times")
    return found
