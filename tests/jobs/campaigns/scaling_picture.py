"""The picture of a simulated campaign: its rate by workers, both axes in powers of two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 46, 140
INKS = ("#0b62c4", "#0f8a8a", "#b3541e", "#8a4fc7")
STYLE = """
text{font:13px system-ui,sans-serif;fill:#222}.faint{stroke:#ccc}
.even{stroke:#888;stroke-dasharray:5 4}.line{fill:none;stroke-width:2.2}rect{fill:#fff}
@media(prefers-color-scheme:dark){rect{fill:#15181c}text{fill:#ddd}.faint{stroke:#3a3f46}}
"""


def picture(loads: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """SVG. loads: by what was simulated, its rows by workers"""
    rows = [row for one in loads.values() for row in one]
    axes = Axes(max(row["workers"] for row in rows), max(row["rate"] for row in rows))
    title = "Scenarios a second by workers, simulated"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}"/><text x="{LEFT}" y="26">{title}</text>',
        *axes.drawn(),
    ]
    for number, (name, one) in enumerate(loads.items()):
        ink, y = INKS[number], HEIGHT - 82 + 20 * number
        points = " ".join(axes.point(row["workers"], row["rate"]) for row in one)
        lines.append(f'<polyline class="line" stroke="{ink}" points="{points}"/>')
        lines.append(f'<line x1="{LEFT}" x2="{LEFT + 26}" y1="{y}" y2="{y}" stroke="{ink}"/>')
        lines.append(f'<text x="{LEFT + 34}" y="{y + 4}">{escape(name)}</text>')
    first = next(iter(loads.values()))[0]
    per_worker = first["rate"] / first["workers"]
    ends = (axes.point(n, n * per_worker) for n in (1, axes.workers))
    lines.append(f'<polyline class="line even" points="{" ".join(ends)}"/>')
    lines.append(f'<text x="{WIDTH - 190}" y="{HEIGHT - 58}">dashed: linear</text></svg>')
    return "\n".join(lines) + "\n"


class Axes:
    """Where a number of workers and a rate are."""

    def __init__(self, workers: int, rate: float) -> None:
        self.workers = workers
        self._doublings = (math.log2(workers), math.ceil(math.log2(rate)) + 1)

    def point(self, workers: float, rate: float) -> str:
        """x and y."""
        across, up = self._doublings
        x = LEFT + math.log2(workers) / across * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - max(0.0, math.log2(rate)) / up * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    def drawn(self) -> Iterator[str]:
        """Lines and numbers of both."""
        across, up = self._doublings
        for power in range(int(across) + 1):
            x = self.point(2**power, 1).partition(",")[0]
            yield f'<line class="faint" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            middle = 'text-anchor="middle"'
            yield f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" {middle}>{2**power}</text>'
        for power in range(0, up + 1, 2):
            y = self.point(1, 2**power).partition(",")[2]
            yield f'<line class="faint" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            yield f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{2**power}</text>'
        yield f'<text x="{WIDTH / 2}" y="{HEIGHT - BOTTOM + 38}">workers</text>'
