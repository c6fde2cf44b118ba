"""The page of findings, one form for all targets: on its first screen what happens to a user, the
two accesses, what they touch, the edge to add and how to see it again; then pictures, tables and
what it rests on. One file that loads nothing.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence

import msgspec

from racegate.history import __version__
from racegate.history.finding import ASSUMPTIONS
from racegate.report.cause.pair import Relation
from racegate.report.finding.pictured import PicturedFinding, SweptSchedule
from racegate.report.templating import render
from racegate.report.timeline.overview import svg_overview
from racegate.report.timeline.plain import plain_timeline
from racegate.report.timeline.svg import LaneLayout, svg_inside

PICTURED_MAX = 8  # schedules of the slider
FRAMES_MAX = 5


class SiteSection(msgspec.Struct, frozen=True, kw_only=True):
    """A section in the navigation of a site. href: from the page that has it

    current: what ARIA says of the section that the page is in, "page" or "true", else nothing
    """

    title: str
    href: str
    current: str = ""


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """Links of a page. home: the page that lists it; before, after: its neighbours, or nothing

    sections: the navigation of the site that the page belongs to, the first page first
    """

    home: str
    home_title: str
    before: str = ""
    after: str = ""
    sections: tuple[SiteSection, ...] = ()


def finding_page(finding: PicturedFinding, *, trail: Trail | None = None) -> str:
    """HTML of one finding. trail: of a page that is one of many"""
    return findings_page(f"{finding.title}: {finding.name}", [finding], trail=trail)


def findings_page(
    title: str, found: Sequence[PicturedFinding], *, trail: Trail | None = None
) -> str:
    """HTML. Several findings have a list above them."""
    shown = [_drawn(finding) for finding in found]
    has_sliders = any(one["stops"] for one in shown)
    script = render("finding.js.j2") if has_sliders else ""
    return render(
        "finding.html.j2",
        title=title,
        shown=shown,
        has_names=len({finding.name for finding in found}) > 1,
        assumptions=ASSUMPTIONS,
        frames_max=FRAMES_MAX,
        version=__version__,
        trail=trail,
        script=script,
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _drawn(finding: PicturedFinding) -> dict[str, object]:
    """A finding with its pictures, as the template has it."""
    timeline, stops = finding.timeline, _chosen(finding.stops)
    has_run = timeline is not None and bool(timeline.step_rows)
    return {
        "finding": finding,
        "is_race": finding.relation is Relation.UNORDERED,
        "wide": "" if timeline is None else svg_inside(timeline),
        "narrow": "" if timeline is None else svg_inside(timeline, LaneLayout.COLUMN),
        "overview": svg_overview(timeline) if timeline is not None and has_run else "",
        "lines": plain_timeline(timeline) if timeline is not None and has_run else [],
        "stops": [_drawn_stop(stop) for stop in stops],
        "passing": next((i for i, stop in enumerate(stops) if not stop.goes_wrong), None),
        "failing": _index(stops, finding),
    }


def _drawn_stop(stop: SweptSchedule) -> dict[str, object]:
    return {
        "goes_wrong": stop.goes_wrong,
        "holds": ", ".join(stop.holds),
        "impact": stop.impact,
        "wide": svg_inside(stop.timeline),
        "narrow": svg_inside(stop.timeline, LaneLayout.COLUMN),
    }


def _chosen(stops: tuple[SweptSchedule, ...]) -> tuple[SweptSchedule, ...]:
    """Those that fit; a slider is for two at least."""
    return stops[:PICTURED_MAX] if len(stops) > 1 else ()


def _index(stops: tuple[SweptSchedule, ...], finding: PicturedFinding) -> int:
    """The stop to begin with: the run itself if it goes wrong, else the first that does."""
    own = [i for i, s in enumerate(stops) if s.goes_wrong and s.holds == finding.holds]
    wrong = [i for i, s in enumerate(stops) if s.goes_wrong]
    return next(iter((*own, *wrong)), max(0, len(stops) - 1))
