"""Makes the table of the survey of kernel libraries from its records.

    python reports/kernels/survey_table.py reports/kernels/survey.jsonl

A kernel is counted once for each library, by its name and its file's. What Inductor generated for a
test, and what a test defines itself, is no kernel of the library.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
from survey import FindingRecord, KernelRecord, Record, RunRecord

_GENERATED = re.compile(r"c[a-z0-9]{51}\.py")  # Inductor's files have the digest of their text
_HEAD = (
    "| library | kernels | launches | programs | findings | lines not told | end a run |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def records_in(path: Path) -> list[Record]:
    return [msgspec.json.decode(line, type=Record) for line in path.read_bytes().splitlines()]


def table(records: list[Record]) -> str:
    libraries: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        libraries[f"{record.library} {record.version}"].append(record)
    rows = [row_of(name, libraries[name]) for name in sorted(libraries)]
    total = ["all", *(str(sum(int(row[at]) for row in rows)) for at in range(1, len(rows[0])))]
    return "\n".join([*_HEAD, *(f"| {' | '.join(row)} |" for row in (*rows, total))])


def row_of(name: str, records: list[Record]) -> list[str]:
    kernels: dict[tuple[str, str], list[KernelRecord]] = defaultdict(list)
    for record in records:
        if isinstance(record, KernelRecord) and is_of_library(record):
            kernels[record.kernel, Path(record.file).name].append(record)
    seen = [one for several in kernels.values() for one in several]
    untold = sum(max(one.untold for one in several) for several in kernels.values())
    found = sum(isinstance(record, FindingRecord) for record in records)
    counts = (
        len(kernels),
        sum(one.launches for one in seen),
        sum(one.programs for one in seen),
        found,
        untold,
        len(ending_kernels(records)),
    )
    return [name, *map(str, counts)]


def is_of_library(record: KernelRecord) -> bool:
    file = Path(record.file)
    return _GENERATED.fullmatch(file.name) is None and not file.name.startswith("test_")


def ending_kernels(records: list[Record]) -> set[str]:
    """Names of kernels that the interpreter cannot compute."""
    messages = [
        record.message
        for record in records
        if isinstance(record, RunRecord) and record.ending == "not modelled"
    ]
    found = (re.match(r"the Triton kernel (\w+)", message) for message in messages)
    return {match[1] for match in found if match is not None}


if __name__ == "__main__":
    print(table(records_in(Path(sys.argv[1]))))
