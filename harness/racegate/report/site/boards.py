"""What files of figures say, as pages show it."""

from __future__ import annotations

import msgspec

from racegate.report.finding.pictured import PicturedFinding
from racegate.report.site.charts import Chart
from racegate.report.site.grids import Grid


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A number of the first page. page: where more of it stands; file: where it is from"""

    value: str
    label: str
    page: str
    file: str


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """What files say, as it is shown.

    proved, found, speed: figures of the first page; charts, grids: by the page that they are on
    cells: of wrong cells of release tables, by the page of each
    """

    proved: tuple[Figure, ...] = ()
    found: tuple[Figure, ...] = ()
    speed: tuple[Figure, ...] = ()
    charts: dict[str, tuple[Chart, ...]] = {}
    grids: dict[str, tuple[Grid, ...]] = {}
    cells: dict[str, tuple[PicturedFinding, ...]] = {}
