"""The view for people: one page that asks for itself again."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from datetime import UTC, datetime
from typing import NamedTuple

from racegate.history import __version__
from racegate.jobs.findability import FindingStatus
from racegate.report.dashboard.targets import cell_text
from racegate.report.objects import DashboardView, FindingView
from racegate.report.search import rate_of
from racegate.report.site.charts import Tone
from racegate.report.templating import render

# Between two looks of an open page.
REFRESH_S = 5.0
PAIRS_SHOWN_MAX = 40
WORKERS_SHOWN_MAX = 100
TONES = {
    FindingStatus.NEW: Tone.BAD,
    FindingStatus.ONGOING: Tone.HALF,
    FindingStatus.RESOLVED: Tone.GOOD,
}


def dashboard_page(view: DashboardView) -> str:
    """HTML that loads nothing but itself."""
    script = render("dashboard.js.j2", refresh_ms=round(REFRESH_S * 1000))
    return render(
        "dashboard.html.j2",
        view=view,
        at=_at,
        ago=lambda moment: _ago(view.read_at - moment),
        workers_shown_max=WORKERS_SHOWN_MAX,
        pairs_shown_max=PAIRS_SHOWN_MAX,
        refresh_s=f"{REFRESH_S:g}",
        rate_of=rate_of,
        spans=spans_of(view),
        tones=TONES,
        cell_text=cell_text,
        version=__version__,
        script=script,
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


class FindingSpan(NamedTuple):
    """When a finding was seen, as a bar. begins, width: in percent of all the time; said: in words

    tone: as charts have it
    """

    finding: FindingView
    begins: float
    width: float
    tone: Tone
    said: str


def spans_of(view: DashboardView) -> list[FindingSpan]:
    """The findings over time, the first seen first, from the first to what is known now."""
    seen = [(one, one.seen) for one in view.findings if one.seen is not None]
    if not seen:
        return []
    start = min(at.first for _, at in seen)
    whole = max(view.read_at - start, *(at.last - start for _, at in seen), 1.0)
    return [
        FindingSpan(
            finding=one,
            begins=min(100 * (at.first - start) / whole, 99.0),
            width=max(1.0, 100 * (at.last - at.first) / whole),
            tone=Tone.BAD if one.status is None else TONES[one.status],
            said=f"{one.status or 'not counted'}, {_at(at.first)} to {_at(at.last)}",
        )
        for one, at in sorted(seen, key=lambda pair: pair[1].first)
    ]


def _at(moment: float) -> str:
    """moment: seconds since 1970"""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(seconds: float) -> str:
    """In the largest unit that there is one of. Clocks of two machines may differ."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{max(0.0, seconds):.0f} s ago"
