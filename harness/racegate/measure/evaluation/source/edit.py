"""An edit of the source, as data: what a mutant has in the place of what."""

from __future__ import annotations

from enum import StrEnum

from racegate.scenario.strict import StrictStruct


class SourceOperator(StrEnum):
    """What is done to the source."""

    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    BOOLEAN = "boolean"
    CONSTANT = "constant off by one"
    CONDITION = "negated condition"
    STATEMENT = "removed statement"
    ARGUMENTS = "swapped arguments"
    LOOP = "break and continue"
    SLICE = "slice bound"
    CHOICE = "min and max"
    WRAPPER = "removed wrapper"
    STEP = "wrong step"
    ROW = "wrong row"
    FIELD = "forgotten field"
    STALE = "stale for fresh"
    CLAMP = "clamp"
    BRANCH = "one branch of two"
    RESET = "missing reset"


class Edit(StrictStruct, frozen=True):
    """One mutant of a file.

    scope: the class and function that it is in; lines: from the first one of its statement to its
        own last one, from 1; start, end: the bytes that are replaced; text: by what
    """

    operator: SourceOperator
    scope: str
    lines: tuple[int, int]
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """The mutated file."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def shown(self, source: bytes) -> tuple[str, str]:
        """The lines that differ, before and after, without indentation."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = source.find(b"\n", self.end)
        before = source[first:last].decode()
        after = source[first : self.start].decode() + self.text + source[self.end : last].decode()
        return _joined(before), _joined(after)


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())
