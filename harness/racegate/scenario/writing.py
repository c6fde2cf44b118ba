"""A scenario as the text of a file, with settings of our own engine or without: what reads files
gives the same scenario again.

What has its default is left out, so that an older racegate, which lacks what came since, reads all
that it can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec
import tomli_w

from racegate.scenario.entries import SCHEMA_VERSION, RequestEntry
from racegate.scenario.spec import Request, ScenarioBase


def toml_of(scenario: ScenarioBase) -> str:
    """TOML, with everything drawn written out."""
    return tomli_w.dumps({"schema": SCHEMA_VERSION, **_keys(scenario)})


def _keys(struct: msgspec.Struct) -> dict[str, object]:
    config = struct.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    return tag | {
        field.encode_name: _plain(value)
        for field in msgspec.structs.fields(struct)
        if (value := getattr(struct, field.name)) is not None and value != field.default
    }


def _plain(value: object) -> object:
    match value:
        case Request():
            # A file leaves more to the seed than a request does.
            return _keys(RequestEntry(**msgspec.structs.asdict(value)))
        case msgspec.Struct():
            return _keys(value)
        case Enum():
            return value.value
        case tuple() | list():
            return [_plain(each) for each in value]
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
    return value
