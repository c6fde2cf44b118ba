"""The page of a finding: on its first screen what happens to a user, the pair, whose the rows are,
the edge to add and how to see it again; then pictures, tables and what it rests on. One file that
loads nothing.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode

import msgspec

from racegate.history import __version__
from racegate.history.finding import ASSUMPTIONS
from racegate.report.cause.pair import Relation
from racegate.report.templating import render
from racegate.report.timeline.material import Material, SweptSchedule
from racegate.report.timeline.overview import svg_overview
from racegate.report.timeline.plain import plain_timeline
from racegate.report.timeline.svg import svg_inside

PICTURED_MAX = 8  # schedules of the slider


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """Links of a page. home: the page that lists it; before, after: its neighbours, or nothing"""

    home: str
    home_title: str
    before: str = ""
    after: str = ""


def finding_page(material: Material, *, trail: Trail | None = None) -> str:
    """HTML. trail: of a page that is one of many"""
    script = render("finding.js.j2")
    stops = _chosen(material.stops)
    timeline = material.timeline
    failing = _index(stops, material)
    return render(
        "finding.html.j2",
        material=material,
        account=material.account,
        is_race=material.account.relation is Relation.UNORDERED,
        picture=None if timeline is None else svg_inside(timeline),
        overview=None if timeline is None else svg_overview(timeline),
        lines=[] if timeline is None else plain_timeline(timeline),
        stops=[(stop, svg_inside(stop.timeline)) for stop in stops],
        passing=next((i for i, stop in enumerate(stops) if not stop.goes_wrong), None),
        failing=failing,
        assumptions=ASSUMPTIONS,
        version=__version__,
        trail=trail,
        script=script,
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _chosen(stops: tuple[SweptSchedule, ...]) -> tuple[SweptSchedule, ...]:
    """Those that fit; a slider is for two at least."""
    return stops[:PICTURED_MAX] if len(stops) > 1 else ()


def _index(stops: tuple[SweptSchedule, ...], material: Material) -> int:
    """The stop to begin with: the run itself if it goes wrong, else the first that does."""
    own = [i for i, s in enumerate(stops) if s.goes_wrong and s.holds == material.result.schedule]
    wrong = [i for i, s in enumerate(stops) if s.goes_wrong]
    return next(iter((*own, *wrong)), max(0, len(stops) - 1))
