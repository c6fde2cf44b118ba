"""Text fit to print: whatever a file, a name or another program said, on one line, and harmless.

What a terminal, a log or a browser would act on instead of showing it (escape codes, line ends,
bidirectional and zero-width marks, halves of characters) is written as Python writes it: `\\x1b`.
"""

from __future__ import annotations

import re

MESSAGE_LENGTH_MAX = 4_000
VALUE_LENGTH_MAX = 200

_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
_MARKDOWN = {ord(c): f"&#{ord(c)};" for c in "<>|`[]"}


def printable(text: str) -> str:
    """The text on one line, each character that is none of print as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def message(text: str) -> str:
    """An error as it is shown: printable lines, and no more of them than anybody reads."""
    beginning = shortened(text, MESSAGE_LENGTH_MAX)
    return shortened(printable_lines(beginning), MESSAGE_LENGTH_MAX)


def quoted(given: object) -> str:
    """Something that a file says, as part of a message: as Python writes it, and not too long."""
    if isinstance(given, int) and given.bit_length() > 4 * VALUE_LENGTH_MAX:
        return f"an integer of {given.bit_length()} bits"
    return printable(shortened(repr(given), VALUE_LENGTH_MAX))


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and how much more there was."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} characters more)"


def many(number: int, noun: str) -> str:
    """A count of something, as `1 landing` or `2 landings`. noun: in the singular, of which the
    last word is counted
    """
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def without_secrets(argument: str) -> str:
    """An argument as it may be shown: a URL without user, password and options."""
    scheme, found, rest = argument.partition("://")
    if not found:
        return argument
    where, asked, _ = rest.rpartition("@")[2].partition("?")
    given = "***@" if "@" in rest else ""
    return f"{scheme}://{given}{where}{'?***' if asked else ''}"


def printable_json(text: str) -> str:
    """JSON text with the same characters as JSON escapes: a reader of the values sees no change."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _BEYOND_ASCII.sub(lambda m: m[0] if m[0].isprintable() else _json_escape(m[0]), text)


def printable_markdown(text: str) -> str:
    """Text for a page in Markdown: no HTML, code, link or cell of a table comes of it."""
    return printable(text).translate(_MARKDOWN)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _json_escape(character: str) -> str:
    """Half a character has no place in JSON: what is read back is its escape."""
    if "\ud800" <= character <= "\udfff":
        return "\\" + _escape(character)
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
