"""The page of a race: what goes wrong, the pair, the edge to add, the picture, and the one hold
that decides; one file that loads nothing.
"""

from __future__ import annotations

import racegate
from racegate.report.templating import render
from racegate.report.timeline.model import Timeline
from racegate.report.timeline.plain import plain_timeline
from racegate.report.timeline.svg import svg_timeline
from racegate.repro.explain import Explanation


def race_page(explanation: Explanation, timeline: Timeline, *, scenario: str, replay: str) -> str:
    """HTML. replay: the command that shows it again. The explanation has a race."""
    race = explanation.race
    assert race is not None
    return render(
        "race.html.j2",
        title=f"Race on {race.buffer}",
        explanation=explanation,
        race=race,
        picture=svg_timeline(timeline),
        lines=plain_timeline(timeline),
        scenario=scenario,
        replay=replay,
        version=racegate.__version__,
    )
