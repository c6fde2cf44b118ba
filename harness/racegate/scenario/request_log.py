"""Requests from a real request log: arrivals become steps, lengths are scaled, the rest is drawn
from the seed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NoReturn

from racegate.scenario.entries import SCHEMA_VERSION, RequestEntry, RequestLogEntry, ScenarioFile
from racegate.scenario.expect import Expect
from racegate.scenario.settings import EngineSpec
from racegate.scenario.spec import REQUESTS_MAX, ScenarioError
from racegate.scenario.untrusted.reading import ReadError, open_text
from racegate.scenario.untrusted.text import quoted

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
LOG_ROWS_MAX = REQUESTS_MAX
LOG_BYTES_MAX = 1 << 26
LINE_LENGTH_MAX = 1 << 14
LOG_TOKENS_MAX = 1 << 30


def entries_from_log(
    log: RequestLogEntry, *, file: ScenarioFile, source: str, folder: Path
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


def _row_range(log: RequestLogEntry, source: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", log.rows)
    if match is None or int(match[1]) >= int(match[2]):
        raise ScenarioError(
            source,
            "$.trace.rows",
            f"must be A:B with A < B (B not included), is {quoted(log.rows)}",
        )
    if int(match[2]) - int(match[1]) > LOG_ROWS_MAX:
        raise ScenarioError(source, "$.trace.rows", f"at most {LOG_ROWS_MAX} rows at a time")
    return int(match[1]), int(match[2])


def _read_rows(path: Path, first: int, end: int, *, source: str) -> list[tuple[datetime, int, int]]:
    try:
        with open_text(path, LOG_BYTES_MAX) as file:
            lines = csv.reader(_short_lines(file))
            columns = _columns(next(lines, []), path, source)
            rows = [
                _parse_row([row[column] for column in columns], number, path, source)
                if len(row) > max(columns)
                else _refuse(path, number, "it has too few columns", source)
                for number, row in enumerate(islice(filter(None, lines), first, end), start=first)
            ]
    except (ReadError, OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(source, "$.trace.file", f"{path} cannot be read: {error}") from error
    if len(rows) < end - first:
        raise ScenarioError(source, "$.trace.rows", f"{path} has no rows {first + len(rows)}:{end}")
    if len({arrived.tzinfo is None for arrived, _, _ in rows}) > 1:
        reason = "some times have a zone and some have none: they have no order"
        raise ScenarioError(source, "$.trace.file", f"{path}: {reason}")
    return sorted(rows, key=lambda row: row[0])


def _short_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines, none of which is so long that its columns fill the memory."""
    for text in lines:
        if len(text) > LINE_LENGTH_MAX:
            raise ReadError(
                f"a line has {len(text)} characters, at most {LINE_LENGTH_MAX} are read"
            )
        yield text


def _columns(header: list[str], path: Path, source: str) -> list[int]:
    """Where the columns are."""
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ScenarioError(source, "$.trace.file", f"{path} has no column {', '.join(missing)}")
    return [header.index(name) for name in COLUMNS]


def _refuse(path: Path, number: int, reason: object, source: str) -> NoReturn:
    raise ScenarioError(source, "$.trace.file", f"{path} row {number}: {reason}")


def _parse_row(
    record: list[str], number: int, path: Path, source: str
) -> tuple[datetime, int, int]:
    """record: time, prompt tokens, generated tokens"""
    try:
        arrived = datetime.fromisoformat(record[0])
        prompt_tokens, generated_tokens = int(record[1]), int(record[2])
    except ValueError as error:
        _refuse(path, number, error, source)
    for tokens in (prompt_tokens, generated_tokens):
        if not 1 <= tokens <= LOG_TOKENS_MAX:
            reason = f"token counts must be at least 1, and at most {LOG_TOKENS_MAX}"
            _refuse(path, number, reason, source)
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
        log=RequestLogEntry(file=csv_path.name, rows=rows, scale=scale, step_ms=step_ms),
        expect=Expect(overlapped_ops=1),
    )
