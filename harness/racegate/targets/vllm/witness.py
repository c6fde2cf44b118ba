"""Witnesses of vLLM's releases, and how those of the first schema are read."""

from __future__ import annotations

import os
import re

import msgspec

from racegate.history.finding import Verdict
from racegate.history.witness import SCHEMA, Raw, WitnessReader
from racegate.scenario.spec import SETTINGS
from racegate.scenario.untrusted.text import quoted
from racegate.targets.common.witnesses.witness import ReleaseWitness, check_release
from racegate.targets.vllm.cell import Cell

# As many as an earlier witness names without asking for fewer.
BLOCKS_USUAL = 128
# Lines of the first schema, which said in words what was wrong.
_WRONG = re.compile(r"step (?P<step>\d+): (?P<what>.+): (?P<used>.+) used, (?P<true>.+) true")
_DELIVERY = re.compile(
    r"request (?P<request>.+) delivers (?P<tokens>\[.*\]), plain decoding (?P<plain>\[.*\])"
)


class EngineWitness(ReleaseWitness, frozen=True, kw_only=True):
    """Of vLLM: what is run, and what was wrong when it was."""

    subject: Cell


def _from_first(raw: Raw) -> Raw:
    """From `racegate.vllm-witness/1`, which says what was wrong in words, and has no seal. What was
    found in a checkout named that in the place of its release.
    """
    names = ("release", "runner", "mode")
    cell = {"of": "vllm", **{name: raw.pop(name) for name in names if name in raw}}
    if os.sep in str(cell.get("release", "")):
        cell = {**cell, "checkout": cell["release"], "release": ""}
    lines = msgspec.convert(raw.pop("wrong", ()), tuple[str, ...])
    holds = msgspec.convert(raw.pop("holds", ()), tuple[tuple[str, str], ...])
    torch, scenario = raw.pop("torch", ""), _without_settings(raw.pop("scenario", None))
    said = [_delivery(line) or _wrong(line) for line in lines]
    return {
        **raw,
        "schema": SCHEMA,
        "title": scenario.get("title", "") if isinstance(scenario, dict) else "",
        "scenario": scenario,
        "subject": cell,
        "holds": [f"{operation} until {until}" for operation, until in holds],
        "signature": "",
        "verdict": Verdict.DIVERGENT.value,
        "wrong": [fields for fields in said if "step" in fields],
        "losses": [fields for fields in said if "request" in fields],
        "versions": {"torch": torch},
    }


def _without_settings(scenario: object) -> object:
    """The scenario as it is written today. The first files stored the settings of racegate's own
    engine too, of which vLLM obeyed one: how many blocks there are, where that was fewer than
    usual.
    """
    if not isinstance(scenario, dict):
        return scenario
    engine = scenario.get("engine")
    blocks = engine.get("blocks") if isinstance(engine, dict) else None
    happening = {key: value for key, value in scenario.items() if key not in SETTINGS}
    if isinstance(blocks, int) and blocks < BLOCKS_USUAL:
        happening["free_blocks"] = blocks
    return happening


def _delivery(line: str) -> Raw | None:
    found = _DELIVERY.fullmatch(line)
    return None if found is None else {**found.groupdict(), **_numbers(found, "tokens", "plain")}


def _wrong(line: str) -> Raw:
    found = _WRONG.fullmatch(line)
    if found is None:
        raise msgspec.ValidationError(f"cannot read what was wrong: {quoted(line)}")
    return {**found.groupdict(), **_numbers(found, "step", "used", "true")}


def _numbers(found: re.Match[str], *names: str) -> Raw:
    """A number or a list of numbers each, as they were printed."""
    try:
        return {name: msgspec.json.decode(found[name]) for name in names}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"cannot read {quoted(found[0])}: {error}") from error


VLLM_WITNESSES = WitnessReader(
    of="vllm",
    title="a vLLM release",
    kind=EngineWitness,
    check=check_release,
    converted=_from_first,
)
