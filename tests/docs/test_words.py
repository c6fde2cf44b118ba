"""docs/words.md: one meaning for every word, and the sources keep to it."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from together import failures

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "words.md"
PACKAGES = {
    "kernels": ROOT / "kernels" / "racegate_kernels",
    "reference": ROOT / "reference" / "racegate_reference",
}
HARNESS = ROOT / "harness" / "racegate"


TERMS_MAX = 150
# The same idea for two kinds of things, each in a folder that must not import the other, or the
# field's one word for both. Nothing else shares its name.
SHARED = {
    "Access": "of the rows of a storage; of the bytes of a program",
    "Conflict": "of the rows of a storage; of the bytes of a program",
    "Driver": "what runs scenarios inside a release, of vLLM and of SGLang",
    "Host": "what a release's runs are forked from, of vLLM and of SGLang",
    "Observation": "of our own engine at a boundary; of a program",
    "Recorder": "of our own engine's devices; of programs",
    "Task": "of a worker; of an engine's process",
    "Version": "of an event, on our own engine's devices and in programs",
}


class Word(NamedTuple):
    """A row of a table. banned: what stands in code style in the third column."""

    room: str
    word: str
    banned: tuple[str, ...]


@cache
def sections() -> dict[str, str]:
    """The page by its headings of the second level."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def rooms() -> dict[str, Path]:
    """Sections that are about a room, and its folder."""
    folders = {path.name: path for path in HARNESS.iterdir() if path.is_dir()} | PACKAGES
    return {name: folders[name] for name in sections() if name in folders}


@cache
def table() -> tuple[Word, ...]:
    words = []
    for room in rooms():
        for line in sections()[room].splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|") or cells[0] in ("word", "---"):
                continue
            assert len(cells) == 3, f"{line!r}: word, is, is not"
            assert cells[1], f"{cells[0]} has no meaning"
            banned = tuple(re.findall(r"`([^`]+)`", cells[2]))
            words.append(Word(room, cells[0], banned))
    return tuple(words)


@cache
def plain_nouns() -> frozenset[str]:
    *_, listed = sections()["Plain words"].split("\n\n")
    return frozenset(re.findall(r"[a-z]+", listed))


def split_name(name: str) -> list[str]:
    """The lower-case words of an identifier, `HoldChooser` or `row_moves`."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@cache
def modules(folder: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))}


@cache
def text_of(folder: Path) -> str:
    """The sources of a room as words in a row: names are split, case and punctuation gone."""
    parts = []
    for path in modules(folder):
        text = re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_]+", " ", path.read_text("utf-8"))
        parts.append(re.sub(r"\s+", " ", text).lower())
    return " ".join(parts)


def spoken(tree: ast.Module) -> set[str]:
    """The words of a module's names and docstrings."""
    found: set[str] = set()
    for node in ast.walk(tree):
        names = [getattr(node, field, None) for field in ("id", "attr", "arg", "name")]
        for name in names:
            if isinstance(name, str):
                found.update(split_name(name))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            found.update(re.findall(r"[a-z]+", (ast.get_docstring(node) or "").lower()))
    return found


@cache
def public_nouns() -> dict[str, list[str]]:
    """The last word of every public class -> the classes."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in (HARNESS, *PACKAGES.values()):
        for tree in modules(folder).values():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[split_name(node.name)[-1]].append(node.name)
    return found


@cache
def public_classes() -> dict[str, list[str]]:
    """Every public class but the reference's -> the modules that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in (HARNESS, PACKAGES["kernels"]):
        for path, tree in modules(folder).items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    return found


def singular(noun: str) -> set[str]:
    return {noun, noun.removesuffix("s"), noun.removesuffix("es")}


def test_every_room_has_its_words() -> None:
    folders = {path.name for path in HARNESS.iterdir() if (path / "__init__.py").exists()}
    without = folders - set(rooms()) - {"cli"}
    assert not without, f"docs/words.md has no section for {sorted(without)}"


def test_a_word_has_one_meaning() -> None:
    words = Counter(form.strip() for word in table() for form in word.word.split(","))
    assert [word for word, number in words.items() if number > 1] == []


def test_every_word_is_used_in_its_room() -> None:
    assert failures(_is_used, table(), named=lambda word: f"{word.room}: {word.word}") == []


def _is_used(word: Word) -> None:
    text = text_of(rooms()[word.room])
    forms = [form.strip().replace("-", " ") for form in word.word.split(",")]
    assert any(re.search(rf"\b{form}(s|es|d|ed)?\b", text) for form in forms), (
        f"nothing in {word.room} says {word.word!r}: remove it from docs/words.md, or move it"
    )


@pytest.mark.parametrize("room", rooms())
def test_no_other_word_is_used_for_it(room: str) -> None:
    banned = {other: word.word for word in table() if word.room == room for other in word.banned}
    for path, tree in modules(rooms()[room]).items():
        for other in sorted(spoken(tree) & set(banned)):
            where = path.relative_to(ROOT)
            pytest.fail(f"{where}: docs/words.md says {banned[other]!r}, not {other!r}")


def test_terms_are_few() -> None:
    assert len(table()) <= TERMS_MAX, "a term of its own is for what the field has no word for"


def test_a_class_name_has_one_meaning() -> None:
    twice = {name: where for name, where in public_classes().items() if len(where) > 1}
    assert twice.keys() == SHARED.keys()


def test_every_public_class_ends_in_a_word_of_the_page() -> None:
    known = {part for word in table() for part in re.findall(r"[a-z]+", word.word)}
    known |= plain_nouns()
    unknown = [
        f"{noun} ({', '.join(classes)})"
        for noun, classes in sorted(public_nouns().items())
        if not singular(noun) & known
    ]
    assert unknown == [], "docs/words.md: say what it is in its room, or list it as a plain word"


def test_it_notices() -> None:
    tree = ast.parse('class BatchGate:\n    """A fence."""\n    def open_gate(self): ...\n')
    assert {"gate", "fence", "open", "batch"} <= spoken(tree)
    assert split_name("HoldChooser") == ["hold", "chooser"]
    assert any(word.banned for word in table() if word.room == "device")
