"""Requests from a real request log: arrivals become steps, lengths are scaled, the rest is drawn
from the seed.
"""

from __future__ import annotations

import csv
import re
from datetime import datetime
from pathlib import Path

from racegate.scenario.entries import SCHEMA_VERSION, LogEntry, RequestEntry, ScenarioFile
from racegate.scenario.spec import REQUESTS_MAX, EngineSpec, Expect, ScenarioError

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
LOG_ROWS_MAX = REQUESTS_MAX
LOG_BYTES_MAX = 1 << 26


def entries_from_log(
    log: LogEntry, *, file: ScenarioFile, source: str, folder: Path
) -> tuple[RequestEntry, ...]:
    """One request per log row. Raises ScenarioError with the reason."""
    first, end = _row_range(log, source)
    if log.scale < 1 or log.step_ms < 1:
        raise ScenarioError(source, "$.trace", "scale and step_ms must be at least 1")
    rows = _read_rows(folder / log.file, first, end, source=source)
    started = rows[0][0]
    entries = []
    for index, (arrived, prompt_tokens, generated_tokens) in enumerate(rows):
        prompt_len = -(-prompt_tokens // log.scale)
        max_tokens = -(-generated_tokens // log.scale)
        longest = file.engine.model_len_max
        if prompt_len + max_tokens > longest:
            needed = -(-(prompt_tokens + generated_tokens) // (longest - 1))
            raise ScenarioError(
                source,
                "$.trace.scale",
                f"log row {first + index} has {prompt_tokens} + {generated_tokens} tokens: with "
                f"scale {log.scale} they do not fit model_len_max = {longest}; "
                f"use at least {needed}",
            )
        elapsed_ms = int((arrived - started).total_seconds() * 1000)
        entries.append(
            RequestEntry(
                name=f"r{first + index}",
                arrive=elapsed_ms // log.step_ms,
                prompt_len=prompt_len,
                max_tokens=max_tokens,
            )
        )
    return tuple(entries)


def _row_range(log: LogEntry, source: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+):(\d+)", log.rows)
    if match is None or int(match[1]) >= int(match[2]):
        raise ScenarioError(
            source, "$.trace.rows", f"must be A:B with A < B (B not included), is {log.rows!r}"
        )
    if int(match[2]) - int(match[1]) > LOG_ROWS_MAX:
        raise ScenarioError(source, "$.trace.rows", f"at most {LOG_ROWS_MAX} rows at a time")
    return int(match[1]), int(match[2])


def _read_rows(path: Path, first: int, end: int, *, source: str) -> list[tuple[datetime, int, int]]:
    try:
        if path.stat().st_size > LOG_BYTES_MAX:
            raise ScenarioError(source, "$.trace.file", f"{path}: more than {LOG_BYTES_MAX} bytes")
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise ScenarioError(
                    source, "$.trace.file", f"{path} has no column {', '.join(missing)}"
                )
            rows = []
            for number, record in enumerate(reader):
                if number >= end:
                    break
                if number >= first:
                    rows.append(_parse_row(record, number, path, source))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(source, "$.trace.file", f"{path} cannot be read: {error}") from error
    if len(rows) < end - first:
        raise ScenarioError(source, "$.trace.rows", f"{path} has no rows {first + len(rows)}:{end}")
    return sorted(rows, key=lambda row: row[0])


def _parse_row(
    record: dict[str, str], number: int, path: Path, source: str
) -> tuple[datetime, int, int]:
    try:
        arrived = datetime.fromisoformat(record["TIMESTAMP"])
        prompt_tokens, generated_tokens = (
            int(record["ContextTokens"]),
            int(record["GeneratedTokens"]),
        )
    except (ValueError, TypeError) as error:
        raise ScenarioError(source, "$.trace.file", f"{path} row {number}: {error}") from error
    if prompt_tokens < 1 or generated_tokens < 1:
        raise ScenarioError(
            source, "$.trace.file", f"{path} row {number}: token counts must be at least 1"
        )
    return arrived, prompt_tokens, generated_tokens


def scenario_file_for(
    csv_path: Path, *, rows: str, scale: int, step_ms: int, seed: int
) -> ScenarioFile:
    """A scenario around a slice of a log, with an engine large enough for typical slices."""
    return ScenarioFile(
        schema=SCHEMA_VERSION,
        name=f"trace-{csv_path.stem}-{rows.replace(':', '-')}",
        title=f"rows {rows} of {csv_path.name}, lengths divided by {scale}",
        origin=csv_path.name,
        seed=seed,
        steps_max=2_000,
        engine=EngineSpec(blocks=512, state_blocks=128, model_len_max=256),
        log=LogEntry(file=csv_path.name, rows=rows, scale=scale, step_ms=step_ms),
        expect=Expect(overlapped_ops=1),
    )
