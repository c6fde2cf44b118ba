"""The picture of simulated campaigns: how much of a worker is left as there are more of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 46, 140
SHARE_MAX = 1.05
INKS = ("#0b62c4", "#0f8a8a", "#b3541e", "#8a4fc7")
STYLE = """
text{font:13px system-ui,sans-serif;fill:#222}.faint{stroke:#ccc}
.line{fill:none;stroke-width:2.2}rect{fill:#fff}
@media(prefers-color-scheme:dark){rect{fill:#15181c}text{fill:#ddd}.faint{stroke:#3a3f46}}
"""


def picture(loads: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """SVG. loads: by what was simulated, its rows by workers"""
    axes = Axes(max(row["workers"] for one in loads.values() for row in one))
    title = "What a worker does of what it does where there are fewest, simulated"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}"/><text x="{LEFT}" y="26">{title}</text>',
        *axes.drawn(),
    ]
    for number, (name, rows) in enumerate(loads.items()):
        ink, y = INKS[number], HEIGHT - 82 + 20 * number
        alone = rows[0]["rate"] / rows[0]["workers"]
        shares = [(row["workers"], row["rate"] / row["workers"] / alone) for row in rows]
        points = " ".join(axes.point(workers, share) for workers, share in shares)
        lines.append(f'<polyline class="line" stroke="{ink}" points="{points}"/>')
        lines.append(f'<line x1="{LEFT}" x2="{LEFT + 26}" y1="{y}" y2="{y}" stroke="{ink}"/>')
        lines.append(f'<text x="{LEFT + 34}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


class Axes:
    """Where a number of workers, in doublings, and a share are."""

    def __init__(self, workers: int) -> None:
        self._doublings = math.ceil(math.log2(workers))

    def point(self, workers: float, share: float) -> str:
        """x and y."""
        x = LEFT + math.log2(workers) / self._doublings * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - share / SHARE_MAX * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    def drawn(self) -> Iterator[str]:
        """Lines and numbers of both."""
        for power in range(self._doublings + 1):
            x, bottom = self.point(2**power, 0).split(",")
            yield f'<line class="faint" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>'
            middle = 'text-anchor="middle"'
            yield f'<text x="{x}" y="{float(bottom) + 18}" {middle}>{2**power}</text>'
        for percent in range(0, 101, 20):
            y = self.point(1, percent / 100).partition(",")[2]
            yield f'<line class="faint" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            yield f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{percent} %</text>'
        yield f'<text x="{WIDTH / 2}" y="{HEIGHT - BOTTOM + 38}">workers</text>'
