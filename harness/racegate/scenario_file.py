"""Scenario files: strict loading of TOML, and making explicit what a file leaves to the seed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from racegate.hashing import draw
from racegate.scenario import (
    DRAFT_LEN_MAX,
    TOKENS_MAX,
    EngineSpec,
    Event,
    Expect,
    ModelSpec,
    Record,
    Request,
    Scenario,
    ScenarioError,
)
from racegate.validation import validate

FILE_BYTES_MAX = 1 << 20


class RequestEntry(Record, frozen=True, kw_only=True):
    """A request as a file writes it: `prompt`, or `prompt_len` to have it drawn from the seed."""

    name: str
    arrive: int = 0
    prompt: tuple[int, ...] | None = None
    prompt_len: int | None = None
    shares: str | None = None
    shares_tokens: int = 0
    max_tokens: int = 8
    stop_after: int | None = None
    stop_token: int | None = None
    accepts: tuple[int, ...] | None = None
    temperature: float = 0.0
    seed: int | None = None
    grammar_modulus: int = 0


class TraceEntry(Record, frozen=True, kw_only=True):
    """Requests taken from a log with the columns TIMESTAMP, ContextTokens, GeneratedTokens."""

    file: str
    rows: str
    scale: int = 32
    step_ms: int = 500


class ScenarioFile(Record, frozen=True, kw_only=True):
    """The file as written, before prompts and accept counts are made explicit."""

    schema: int
    name: str
    title: str
    origin: str = ""
    seed: int = 1
    steps_max: int = 200
    model: ModelSpec = ModelSpec()
    engine: EngineSpec = EngineSpec()
    requests: tuple[RequestEntry, ...] = ()
    trace: TraceEntry | None = None
    events: tuple[Event, ...] = ()
    expect: Expect = Expect()


SCHEMA_VERSION = 1


def load(path: Path) -> Scenario:
    """The scenario in a TOML file. Raises ScenarioError with file, path in the file and reason."""
    source = str(path)
    try:
        size_bytes = path.stat().st_size
        if size_bytes > FILE_BYTES_MAX:
            raise ScenarioError(
                source, "$", f"{size_bytes} bytes, at most {FILE_BYTES_MAX} are read"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(source, "$", f"cannot be read: {error}") from error
    return parse(text, source=source, folder=path.parent)


def parse(text: str, *, source: str, folder: Path) -> Scenario:
    """The scenario in TOML text; a trace file is looked up relative to `folder`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(source, "$", f"not TOML: {error}") from error
    if raw.get("schema") != SCHEMA_VERSION:
        raise ScenarioError(
            source, "$.schema", f"must be {SCHEMA_VERSION}, is {raw.get('schema')!r}"
        )
    try:
        file = msgspec.convert(raw, ScenarioFile, strict=True)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise ScenarioError(source, path.rstrip("`") or "$", reason) from error
    return explicit(file, source=source, folder=folder)


def explicit(file: ScenarioFile, *, source: str, folder: Path) -> Scenario:
    """The file with every prompt, accept count and seed written out, validated. Raises
    ScenarioError.
    """
    if file.trace is not None:
        from racegate.request_log import entries_from_log

        if file.requests:
            raise ScenarioError(source, "$.trace", "give either requests or a trace, not both")
        entries = entries_from_log(file.trace, file=file, source=source, folder=folder)
    else:
        entries = file.requests
    requests: list[Request] = []
    for index, entry in enumerate(entries):
        _check_drawable(entry, source=source, path=f"$.requests[{index}]")
        requests.append(
            _request_from_entry(entry, index=index, file=file, before=requests, source=source)
        )
    scenario = Scenario(
        name=file.name,
        title=file.title,
        origin=file.origin,
        seed=file.seed,
        steps_max=file.steps_max,
        model=file.model,
        engine=file.engine,
        requests=tuple(requests),
        events=file.events,
        expect=file.expect,
    )
    return validate(scenario, source=source)


def _check_drawable(entry: RequestEntry, *, source: str, path: str) -> None:
    if (entry.prompt is None) == (entry.prompt_len is None):
        raise ScenarioError(source, path, "give exactly one of prompt and prompt_len")
    if entry.prompt_len is not None and not 1 <= entry.prompt_len <= TOKENS_MAX:
        raise ScenarioError(source, f"{path}.prompt_len", f"must be 1..{TOKENS_MAX}")
    if not 1 <= entry.max_tokens <= TOKENS_MAX:
        raise ScenarioError(source, f"{path}.max_tokens", f"must be 1..{TOKENS_MAX}")


def _request_from_entry(
    entry: RequestEntry, *, index: int, file: ScenarioFile, before: list[Request], source: str
) -> Request:
    path = f"$.requests[{index}]"
    vocab_size = max(1, file.model.vocab_size)
    if entry.prompt is not None:
        prompt = entry.prompt
    else:
        assert entry.prompt_len is not None
        label = f"prompt:{entry.name}"
        prompt = tuple(draw(file.seed, label, i) % vocab_size for i in range(entry.prompt_len))
    if entry.shares is not None:
        shared = next((request.prompt for request in before if request.name == entry.shares), None)
        if shared is None:
            raise ScenarioError(source, f"{path}.shares", f"no earlier request {entry.shares!r}")
        if not 0 < entry.shares_tokens <= min(len(shared), len(prompt)):
            raise ScenarioError(source, f"{path}.shares_tokens", "must fit both prompts")
        prompt = shared[: entry.shares_tokens] + prompt[entry.shares_tokens :]
    accepts = entry.accepts
    if accepts is None:
        # As many draws as rounds can occur: every round delivers at least one token.
        width = 1 + max(0, min(file.engine.draft_len_max, DRAFT_LEN_MAX))
        label = f"accepts:{entry.name}"
        accepts = tuple(
            1 + draw(file.seed, label, i) % width for i in range(min(64, entry.max_tokens))
        )
    return Request(
        name=entry.name,
        arrive=entry.arrive,
        prompt=prompt,
        max_tokens=entry.max_tokens,
        stop_after=entry.stop_after,
        stop_token=entry.stop_token,
        accepts=accepts,
        temperature=entry.temperature,
        seed=draw(file.seed, f"seed:{entry.name}", 0) if entry.seed is None else entry.seed,
        grammar_modulus=entry.grammar_modulus,
    )
