"""The schema of scenario files, for editors: `python -m racegate.report.published.schema
docs/scenario.schema.json` writes it, and `racegate new scenario` beside what it begins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from racegate.report.published.contract import kinds_of, meanings
from racegate.scenario.entries import SCHEMA_VERSION, ScenarioFile
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
