"""Commands in README and docs: each is one that the command line takes, and what is shown below
some is an excerpt of what they print.
"""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.cli.options import UsageError
from repository import ROOT, named

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Code: between fences, or indented.
CODE = re.compile(r"^```(\w*)\n(.*?)^```|((?:^ {4}[^\n]*\n(?:\n(?= {4}))?)+)", re.M | re.S)
COMMAND = re.compile(r"^(?:\$ )?(racegate (?:.*\\\n)*.*)", re.M)
# Notation of the reader's language, not of a shell.
NOTATION = re.compile(r"(?<!\\)[<>|;\[\]]|\.\.\.|&&")


class Shown(NamedTuple):
    """A command, and what the page shows below it, if anything."""

    page: Path
    command: str
    output: str


def blocks(page: Path) -> list[str]:
    """Code of a page, without its indentation."""
    text = page.read_text()
    matches = [match for match in CODE.finditer(text) if not match[1]]
    found = [match[2] or match[3] for match in matches]
    return [re.sub(r"^ {4}", "", block, flags=re.M) for block in found]


def commands() -> list[Shown]:
    shown = []
    for page in PAGES:
        for block in blocks(page):
            ends = [*(match.start() for match in COMMAND.finditer(block)), len(block)]
            for match, end in zip(COMMAND.finditer(block), ends[1:], strict=True):
                output = block[match.end() : end].strip() if match[0].startswith("$") else ""
                shown.append(Shown(page, match[1].replace("\\\n", " "), output))
    return shown


ALL = commands()
# tests/targets/adapters/test_guide.py has those of the guide to runners.
RUN = [one for one in ALL if one.output and one.page.name in ("README.md", "replay.md")]


def words_of(one: Shown) -> list[str]:
    return shlex.split(one.command, comments=True)[1:]


def label(one: Shown) -> str:
    return f"{named(one.page)}: {one.command[:60]}"


def test_there_are_commands_to_look_at() -> None:
    assert len(ALL) > 40
    assert len(RUN) >= 4


def test_every_command_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed and not run; files that it names need not be there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("racegate.cli.options.check_writable", lambda path: None)
    command = typer.main.get_command(app)
    refused = []
    for one in ALL:
        if NOTATION.search(shlex.join(words_of(one))):
            continue
        try:
            parse(command, words_of(one))
        except (SystemExit, UsageError) as error:
            refused.append(f"{label(one)}: {error}")
    assert refused == []


def parse(group: Any, words: list[str]) -> None:
    """Down to the command that would be run."""
    context = group.make_context("racegate", [words[0]])
    while isinstance(group, TyperGroup):
        _, group, words = group.resolve_command(context, words)
        first = words[:1] if isinstance(group, TyperGroup) else words
        context = group.make_context("racegate", list(first), parent=context)


@pytest.mark.parametrize("one", RUN, ids=label)
def test_it_prints_what_is_shown(one: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    said = CliRunner().invoke(app, words_of(one)).output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(f"...{one.output}...", said, flags), said
