"""Selecting: by what differs from a commit, and by name: `-k EXPRESSION`, as pytest has it, over
names of scenarios and witnesses.

A word selects the names that contain it, in upper or lower case; `not`, `and`, `or` and parentheses
combine words, and bind in this order. Nothing is evaluated but this grammar:

    either = both { "or" both }
    both = one { "and" one }
    one = "not" one | "(" either ")" | word
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.near import nearest
from racegate.scenario.untrusted.text import printable, quoted

Selects = Callable[[str], bool]

OPERATORS = frozenset({"and", "or", "not", "(", ")"})
_TOKEN = re.compile(r"[()]|[^\s()]+")
# Words and operators; each of them may nest.
TOKENS_MAX = 100


class SelectionError(BadInputError):
    """An expression that cannot be read, or that selects nothing: says where, or what is near."""


def parse_selection(text: str) -> Selects:
    """What says whether a name is selected. Raises SelectionError."""
    tokens = tuple(_TOKEN.findall(text))
    if len(tokens) > TOKENS_MAX:
        raise SelectionError(
            f"-k {quoted(text)}: {len(tokens)} words and operators, at most {TOKENS_MAX} are read"
        )
    parser = _Parser(text, tokens)
    selects = parser.either()
    parser.expect_end()
    return selects


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: tuple[str, ...]
    place: int = 0

    def either(self) -> Selects:
        found = self._both()
        while self._takes("or"):
            found = _any_of(found, self._both())
        return found

    def _both(self) -> Selects:
        found = self._one()
        while self._takes("and"):
            found = _all_of(found, self._one())
        return found

    def _one(self) -> Selects:
        if self._takes("not"):
            return _none_of(self._one())
        if self._takes("("):
            found = self.either()
            if not self._takes(")"):
                self._fail("a closing parenthesis")
            return found
        if self.place == len(self.tokens) or self.tokens[self.place] in OPERATORS:
            self._fail("a word of a name")
        self.place += 1
        return _containing(self.tokens[self.place - 1])

    def expect_end(self) -> None:
        if self.place < len(self.tokens):
            self._fail("'and', 'or' or the end")

    def _takes(self, token: str) -> bool:
        is_here = self.place < len(self.tokens) and self.tokens[self.place] == token
        self.place += int(is_here)
        return is_here

    def _fail(self, wanted: str) -> None:
        place = self.place
        here = quoted(self.tokens[place]) if place < len(self.tokens) else "the end"
        raise SelectionError(
            f"-k {quoted(self.text)}: at {here} there should be {wanted}; write words of names, "
            "combined by not, and, or and parentheses"
        )


def _containing(word: str) -> Selects:
    return lambda name: word.lower() in name.lower()


def _all_of(one: Selects, other: Selects) -> Selects:
    return lambda name: one(name) and other(name)


def _any_of(one: Selects, other: Selects) -> Selects:
    return lambda name: one(name) or other(name)


def _none_of(one: Selects) -> Selects:
    return lambda name: not one(name)


def nothing_selected(expression: str, names: Sequence[str]) -> SelectionError:
    """The error for an expression that selects none of these names."""
    words = [word for word in _TOKEN.findall(expression) if word not in OPERATORS]
    near = ", ".join(map(printable, nearest(words, names)))
    return SelectionError(
        f"-k {quoted(expression)} selects none of {len(names)} scenarios and witnesses; "
        f"near it: {near}"
    )


def changed_files(ref: str) -> frozenset[Path]:
    """Files of this folder's repository that differ from where its branch left a commit, or that
    git does not know yet. Raises SelectionError.
    """
    if ref.startswith("-"):
        raise SelectionError(f"--changed {quoted(ref)}: a commit, branch or tag has another name")
    top = Path(_git("rev-parse", "--show-toplevel").rstrip("\n"))
    base = _git("merge-base", ref, "HEAD").strip()
    listed = _git("-C", str(top), "diff", "--name-only", "-z", base)
    listed += _git("-C", str(top), "ls-files", "--others", "--exclude-standard", "-z")
    return frozenset((top / name).resolve() for name in listed.split("\0") if name)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, encoding="utf-8", errors="surrogateescape"
        )
    except OSError as error:
        raise SelectionError(f"--changed needs git: {error.strerror}") from error
    if done.returncode:
        why = done.stderr.strip().partition("\n")[0] or "git found no common commit"
        raise SelectionError(f"--changed: {printable(why)}")
    return done.stdout
