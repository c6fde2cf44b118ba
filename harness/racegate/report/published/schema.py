"""The schema of scenario files, for editors: `python -m racegate.report.published.schema
docs/scenario.schema.json` writes it, and `racegate new scenario` beside what it begins.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import inspect as types

from racegate.scenario.entries import SCHEMA_VERSION, ScenarioFile
from racegate.scenario.spec import OwnScenario
from racegate.scenario.untrusted.text import printable_json

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_text() -> str:
    """JSON Schema of a file as it is written. What a field means comes from its docstring."""
    schema = msgspec.json.schema(ScenarioFile)
    for kind in kinds_of(ScenarioFile):
        _describe(schema["$defs"][kind.__name__], kind)
    top = schema["$defs"][ScenarioFile.__name__]["properties"]
    top["schema"] = {"const": SCHEMA_VERSION, "description": "the version of this format"}
    whole = {"$schema": DRAFT, "title": "A scenario of racegate", **schema}
    return printable_json(json.dumps(whole, indent=1) + "\n")


def kinds_of(struct: type[msgspec.Struct]) -> Iterator[type]:
    """A Struct, and every Struct and enumeration that it leads to, in the order of its fields."""
    yield from _kinds(types.type_info(struct))


def _kinds(info: types.Type) -> Iterator[type]:
    match info:
        case types.StructType(cls=cls, fields=fields) if cls is not OwnScenario:
            yield cls
            for field in fields:
                yield from _kinds(field.type)
        case types.EnumType(cls=cls):
            yield cls
        case types.VarTupleType(item_type=one) | types.ListType(item_type=one):
            yield from _kinds(one)
        case types.TupleType(item_types=parts) | types.UnionType(types=parts):
            for part in parts:
                yield from _kinds(part)
        case types.DictType(key_type=key, value_type=value):
            yield from _kinds(key)
            yield from _kinds(value)


def meanings(docstring: str | None, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """(what a docstring says as a whole, what it says of each name)."""
    text = inspect.cleandoc(docstring or "")
    one = "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or r"(?!)"
    pattern = rf"(?:^|(?<=[;.]))\s*((?:{one})(?:, (?:{one}))*):\s"
    found = list(re.finditer(pattern, text, re.MULTILINE))
    starts = [*(match.start() for match in found), len(text)]
    said: dict[str, str] = {}
    for match, end in zip(found, starts[1:], strict=True):
        meaning = " ".join(text[match.end() : end].split()).rstrip(";.")
        said |= dict.fromkeys(match[1].split(", "), meaning)
    return " ".join(text[: starts[0]].split()), said


def _describe(part: dict[str, object], kind: type) -> None:
    """Moves what a docstring says of each field to the field, by its name in the file."""
    if not issubclass(kind, msgspec.Struct):
        return
    part["description"], said = meanings(kind.__doc__, kind.__struct_fields__)
    written = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    properties = part["properties"]
    assert isinstance(properties, dict)
    for name, text in said.items():
        properties[written[name]]["description"] = text


def main(target: Path) -> None:
    """Writes the schema."""
    target.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
