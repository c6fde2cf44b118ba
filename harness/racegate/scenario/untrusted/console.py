"""The console that all tables and lines go through: no markup, no emoji, nothing unprintable.

A text is one line. What has a style or several lines is made by `line` and `lines`, so that nothing
is ever read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from racegate.scenario.untrusted.text import printable, printable_lines

# A piece of a line: as it is, or with a style.
Piece = str | tuple[str, str]


def line(*pieces: Piece) -> Text:
    """One line, some pieces of it styled: `line(("not exercised", "yellow"), f": {reason}")`."""
    parts = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
    return Text.assemble(*((printable(text), style) for text, style in parts))


def lines(texts: Iterable[str]) -> Text:
    """Several lines, as in a cell of a table."""
    return Text("\n".join(map(printable, texts)))


class PrintableConsole(Console):
    """A console that shows what it is given, and acts on none of it. Width and file: as of rich."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False)

    def render_str(self, text: str, **how: object) -> Text:
        """A text before it is laid out: what is escaped has its width."""
        return super().render_str(printable(text), **how)  # type: ignore[arg-type]

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Everything comes through here, whoever made it: a net below the other one."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)
