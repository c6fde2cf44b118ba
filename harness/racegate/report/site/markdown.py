"""Markdown of a report as a part of a page: tables and code scroll in boxes of their own, links
lead to pages of the site or to public places, and what is HTML in it is text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from itertools import pairwise
from urllib.parse import quote, unquote, urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from racegate.scenario.untrusted.text import printable_lines

PUBLIC = ("https",)
_BOX = '<div class="scroll" tabindex="0" role="region" aria-label="{}">\n'


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A page of Markdown. title: its first heading; html: what stands below it"""

    title: str
    html: str


def written(text: str, *, file: str, targets: Mapping[str, str]) -> Written:
    """file: where it stands, from the folder of reports

    targets: a file there -> the file of the site that it becomes
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(printable_lines(text.replace("\t", "    ")))
    title, tokens = _without_title(tokens)
    here = _Place(file=file, targets=targets)
    shown = [one for token in tokens for one in _linked(token, here)]
    html = parser.renderer.render(_boxed(_headed(shown)), parser.options, {})
    return Written(title=title or file, html=html)


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    targets: Mapping[str, str]

    def leads_to(self, link: str) -> str | None:
        """What a link becomes; None if it leads neither into the site nor to a public place."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return link if parts.scheme in PUBLIC and parts.netloc else None
        if not parts.path:
            return link
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.file), unquote(parts.path)))
        target = self.targets.get(path) or self.targets.get(f"{path}/README.md")
        if target is None:
            return None
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        return relative(self.targets.get(self.file, self.file), target) + fragment


def relative(page: str, target: str) -> str:
    """A link from one file of the site to another."""
    path = posixpath.relpath(target, posixpath.dirname(page) or ".")
    return quote(path, errors="surrogateescape")


def _without_title(tokens: list[Token]) -> tuple[str, list[Token]]:
    """The first heading is the page's."""
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        return plain_text(tokens[1]), tokens[3:]
    return "", tokens


def plain_text(token: Token) -> str:
    """An inline token without its marks."""
    kinds = ("text", "code_inline")
    children = token.children or []
    return "".join(child.content for child in children if child.type in kinds)


def _linked(token: Token, here: _Place) -> list[Token]:
    """Links that lead nowhere become their text."""
    if token.type != "inline" or token.children is None:
        return [token]
    kept: list[Token] = []
    leads = True
    for child in token.children:
        if child.type == "link_open":
            target = here.leads_to(str(child.attrs.get("href", "")))
            leads = target is not None
            if target is not None:
                child.attrs["href"] = target
        is_mark = child.type in ("link_open", "link_close")
        if not is_mark or leads:
            kept.append(child)
    token.children = kept
    return [token]


def anchor_of(heading: str) -> str:
    """What a link calls a heading: as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _headed(tokens: list[Token]) -> list[Token]:
    """Headings have anchors; a second title is one below the page's."""
    used: dict[str, int] = {}
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            name = anchor_of(plain_text(inline))
            number = used.get(name, 0)
            used[name] = number + 1
            token.attrs["id"] = f"{name}-{number}" if number else name
    for token in tokens:
        if token.type.startswith("heading") and token.tag == "h1":
            token.tag = "h2"
    return tokens


def _boxed(tokens: list[Token]) -> list[Token]:
    """Tables and code in boxes that scroll, each with a name of its own; an empty heading of a
    table is a cell.
    """
    found: list[Token] = []
    tables = codes = 0
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            tables += 1
            found.append(_html(_BOX.format(f"Table {tables}")))
        if token.type in ("fence", "code_block"):
            codes += 1
            found.append(_html(_BOX.format(f"Code {codes}")))
        if token.type == "th_open" and not tokens[place + 1].content.strip():
            token.tag = tokens[place + 2].tag = "td"
        found.append(token)
        if token.type in ("table_close", "fence", "code_block"):
            found.append(_html("</div>\n"))
    return found


def _html(text: str) -> Token:
    """Of this module's own."""
    return Token("html_block", "", 0, content=text)
