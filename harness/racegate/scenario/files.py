"""Scenario files: strict loading of TOML, and making explicit what a file leaves to the seed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from racegate.scenario.draws import draw
from racegate.scenario.entries import SCHEMA_VERSION, RequestEntry, ScenarioFile
from racegate.scenario.request_log import entries_from_log
from racegate.scenario.shipped import shipped_scripts
from racegate.scenario.spec import (
    DRAFT_LEN_MAX,
    REQUESTS_MAX,
    SETTINGS,
    TOKENS_MAX,
    AnyScenario,
    OwnScenario,
    Request,
    Scenario,
    ScenarioError,
    configured,
)
from racegate.scenario.untrusted.near import near_it
from racegate.scenario.untrusted.reading import ReadError, decode_toml, read_text
from racegate.scenario.untrusted.shapes import line_of, refused
from racegate.scenario.untrusted.text import quoted
from racegate.scenario.validation import validate

FILE_BYTES_MAX = 1 << 20


class ScenarioEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario script. file: its path; name: what commands and results call it
    title: what it exercises; origin: where it comes from
    """

    file: str
    name: str
    title: str
    origin: str


def load(path: Path) -> OwnScenario:
    """The script in a TOML file, for our own engine: what happens, and the settings of its tables
    [model] and [engine]. Raises ScenarioError with file, path in the file and reason.
    """
    return parse(_read(path), source=str(path), folder=path.parent)


def script_file(given: Path, below: str = "") -> Path:
    """The file of a script that may be given by its name: of that name in the folder `scenarios`
    here, or among those that come with racegate. below: the folder of an engine's own scripts
    Raises ScenarioError for a name that is none of them.
    """
    if given.suffix == ".toml" or given.parent != Path() or os.path.lexists(given):
        return given
    known, wanted = named_scripts(below), given.name.replace("_", "-")
    if wanted in known:
        return known[wanted]
    near = near_it(given.name, known)
    raise ScenarioError(str(given), "$", f"no such file, and no script of that name{near}")


def named_scripts(below: str = "") -> dict[str, Path]:
    """Scripts by the names that `script_file` takes, with its `below`."""
    folders = [place / below for place in (Path("scenarios"), shipped_scripts())]
    return {
        path.stem.replace("_", "-"): path
        for folder in folders[::-1]
        for path in _scripts_in(folder)
    }


def load_for(target: str, path: Path) -> Scenario:
    """The scenario in a TOML file, for a target that has settings of its own: a file with settings
    of our own engine is refused, because the target would ignore them. target: what a reader calls
    it. Raises ScenarioError with file, path in the file and reason.
    """
    text, source = _read(path), str(path)
    with _lines_told(text):
        raw = _decoded(text, source)
        for table in SETTINGS:
            if table in raw:
                raise ScenarioError(source, f"$.{table}", _ignored_by(target, table, raw[table]))
        file = _file_of(raw, source)
        return validate(_happening_in(file, source=source, folder=path.parent), source=source)


def _ignored_by(target: str, table: str, settings: object) -> str:
    """Why a table is refused, and what to do."""
    text = f"[{table}] is of racegate's own engine, and {target} would ignore it: leave it out"
    if isinstance(settings, Mapping) and "blocks" in settings:
        return f"{text}; a pool with few free blocks is asked for by free_blocks, above the tables"
    return text


def _read(path: Path) -> str:
    try:
        return read_text(path, FILE_BYTES_MAX)
    except ReadError as error:
        raise ScenarioError(str(path), "$", f"cannot be read: {error}{_beside(path)}") from error


def _beside(path: Path) -> str:
    """What is near a file that is not there."""
    if os.path.lexists(path) or not path.parent.is_dir():
        return ""
    return near_it(path.name, (other.name for other in path.parent.glob("*.toml")))


def parse(text: str, *, source: str, folder: Path) -> OwnScenario:
    """The script in TOML text; a request log is looked up relative to `folder`."""
    with _lines_told(text):
        return from_keys(_decoded(text, source), source=source, folder=folder)


@contextmanager
def _lines_told(text: str) -> Iterator[None]:
    """Inside, what is wrong with a file is told with its line."""
    try:
        yield
    except ScenarioError as error:
        line = line_of(text, error.path, error.reason)
        if line is None:
            raise
        reason = f"{error.reason} (line {line})"
        raise ScenarioError(error.source, error.path, reason) from error


def _decoded(text: str, source: str) -> dict[str, object]:
    try:
        return decode_toml(text)
    except ReadError as error:
        raise ScenarioError(source, "$", str(error)) from error


def from_keys(raw: Mapping[str, object], *, source: str, folder: Path) -> OwnScenario:
    """The script that the keys of a file make. Raises ScenarioError."""
    return explicit(_file_of(raw, source), source=source, folder=folder)


def _file_of(raw: Mapping[str, object], source: str) -> ScenarioFile:
    if raw.get("schema") != SCHEMA_VERSION:
        raise ScenarioError(
            source, "$.schema", f"must be {SCHEMA_VERSION}, is {quoted(raw.get('schema'))}"
        )
    try:
        return msgspec.convert(raw, ScenarioFile, strict=True)
    except msgspec.ValidationError as error:
        raise ScenarioError(source, *refused(error, ScenarioFile)) from error


def explicit(file: ScenarioFile, *, source: str, folder: Path) -> OwnScenario:
    """The file with every prompt, accept count and seed written out, validated for our own engine.
    Raises ScenarioError.
    """
    if file.free_blocks is not None:
        reason = "is for releases, whose pools are their own; engine.blocks is ours: give that"
        raise ScenarioError(source, "$.free_blocks", reason)
    if file.pauses:
        raise ScenarioError(source, "$.pauses", "are for releases: this engine is never paused")
    scenario = _happening_in(file, source=source, folder=folder)
    return validate(configured(scenario, model=file.model, engine=file.engine), source=source)


def _happening_in(file: ScenarioFile, *, source: str, folder: Path) -> Scenario:
    """What happens, with everything drawn written out."""
    if file.log is not None:
        if file.requests:
            raise ScenarioError(source, "$.trace", "give either requests or a trace, not both")
        entries = entries_from_log(file.log, file=file, source=source, folder=folder)
    else:
        entries = file.requests
    _check_drawable(entries, source)
    requests: dict[str, Request] = {}
    for index, entry in enumerate(entries):
        if entry.name in requests:
            raise ScenarioError(
                source, f"$.requests[{index}].name", f"{quoted(entry.name)} stands twice"
            )
        requests[entry.name] = _request_from_entry(
            entry, index=index, file=file, before=requests, source=source
        )
    return Scenario(
        name=file.name,
        title=file.title,
        origin=file.origin,
        seed=file.seed,
        steps_max=file.steps_max,
        free_blocks=file.free_blocks,
        pauses=file.pauses,
        requests=tuple(requests.values()),
        events=file.events,
        expect=file.expect,
    )


def _check_drawable(entries: Sequence[RequestEntry], source: str) -> None:
    """Before anything is drawn: how much there is to draw."""
    if len(entries) > REQUESTS_MAX:
        raise ScenarioError(
            source, "$.requests", f"{len(entries)} requests, at most {REQUESTS_MAX} are run"
        )
    total = 0
    for index, entry in enumerate(entries):
        path = f"$.requests[{index}]"
        if (entry.prompt is None) == (entry.prompt_len is None):
            raise ScenarioError(source, path, "give exactly one of prompt and prompt_len")
        if entry.prompt_len is not None and not 1 <= entry.prompt_len <= TOKENS_MAX:
            raise ScenarioError(source, f"{path}.prompt_len", f"must be 1..{TOKENS_MAX}")
        if not 1 <= entry.max_tokens <= TOKENS_MAX:
            raise ScenarioError(source, f"{path}.max_tokens", f"must be 1..{TOKENS_MAX}")
        total += (entry.prompt_len or len(entry.prompt or ())) + entry.max_tokens
    if total > TOKENS_MAX:
        raise ScenarioError(source, "$.requests", f"{total} tokens in all, at most {TOKENS_MAX}")


def _request_from_entry(
    entry: RequestEntry,
    *,
    index: int,
    file: ScenarioFile,
    before: Mapping[str, Request],
    source: str,
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
        if entry.shares not in before:
            raise ScenarioError(
                source, f"{path}.shares", f"no earlier request {quoted(entry.shares)}"
            )
        shared = before[entry.shares].prompt
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
        grammar_turns=entry.grammar_turns,
        images=entry.images,
    )


# Below a folder of scripts: a covering array of pairs of features, which belongs to it.
PAIRS = "pairs"


def scenario_paths(folder: Path) -> list[Path]:
    """The scenario files of a folder, by name, with those of its covering array. Raises
    ScenarioError if there are none.
    """
    paths = _scripts_in(folder)
    if not paths:
        why = "no *.toml in it" if folder.is_dir() else "there is no such folder"
        raise ScenarioError(str(folder), why, "name the folder of the scripts with --scenarios")
    return paths


def _scripts_in(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.toml")), *sorted((folder / PAIRS).glob("*.toml"))]


def load_all(paths: Sequence[Path]) -> list[tuple[Path, OwnScenario]]:
    """All scripts, before any is run: a bad file stops the gate at once. Raises ScenarioError,
    also if two files share a name: their results could not be told apart.
    """
    return _named_once([(path, load(path)) for path in paths])


def load_all_for(target: str, paths: Sequence[Path]) -> list[tuple[Path, Scenario]]:
    """The same for a target that has settings of its own. Raises ScenarioError as `load_for`."""
    return _named_once([(path, load_for(target, path)) for path in paths])


def _named_once(loaded: list[tuple[Path, AnyScenario]]) -> list[tuple[Path, AnyScenario]]:
    first: dict[str, Path] = {}
    for path, scenario in loaded:
        if scenario.name in first:
            other = first[scenario.name]
            raise ScenarioError(str(path), "$.name", f"{quoted(scenario.name)} is also in {other}")
        first[scenario.name] = path
    return loaded


def left_out(folder: Path) -> dict[str, int]:
    """The folders below a folder of scripts that have scripts too, and how many: nobody reads
    them. Hidden ones, as of an environment, are not meant for it.
    """
    below = [path.parent.relative_to(folder) for path in folder.rglob("*/*.toml")]
    below = [path for path in below if not any(part.startswith(".") for part in path.parts)]
    return dict(sorted(Counter(name for name in map(str, below) if name != PAIRS).items()))
