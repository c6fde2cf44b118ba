"""Templates of the committed pages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined

from racegate.scenario.untrusted.text import printable_lines, printable_markdown

# What a terminal shows; a test keeps all Markdown to it.
COLUMNS = 120
ITEMS = ("- ", "* ")


def render(template: str, **values: object) -> str:
    """A template of this package. Raises jinja2.UndefinedError for a name that has no value."""
    is_page = template.endswith((".html.j2", ".svg.j2"))
    text = _templates(is_page=is_page).get_template(template).render(**values)
    return filled(text) if template.endswith(".md.j2") else text


@cache
def _templates(*, is_page: bool) -> Environment:
    """Compiled once. is_page: what is put in is text, whatever stands in it"""
    templates = Environment(
        loader=PackageLoader("racegate.report"),
        autoescape=is_page,
        finalize=_fit,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["plain"] = printable_markdown
    return templates


def _fit(value: object) -> object:
    """What a page is given as text comes from files too."""
    return printable_lines(value) if type(value) is str else value


def filled(text: str) -> str:
    """Markdown whose paragraphs and items keep to COLUMNS; tables, code and headings are left."""
    return "".join(f"{line}\n" for line in _filled(text.splitlines()))


def _filled(lines: Iterable[str]) -> Iterator[str]:
    numbered = _with_paragraphs(lines)
    for _, group in groupby(numbered, key=lambda pair: pair[0]):
        paragraph = [line for _, line in group]
        if max(map(len, paragraph)) <= COLUMNS or _is_left(paragraph[0]):
            yield from paragraph
            continue
        indent = "  " if paragraph[0].startswith(ITEMS) else ""
        yield from textwrap.wrap(
            " ".join(line.strip() for line in paragraph),
            COLUMNS,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _with_paragraphs(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each line with the number of its paragraph or item; what is left alone is one of its own."""
    number = 0
    is_open = False
    for line in lines:
        is_alone = not line or _is_left(line)
        if is_alone or not is_open or line.startswith(ITEMS):
            number += 1
        is_open = not is_alone
        yield number, line


def _is_left(line: str) -> bool:
    return line.startswith(("|", "#", "    ", "```"))
