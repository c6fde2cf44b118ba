"""Several findings on one page: a list, and below it each with its picture. One file that loads
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from racegate.history import __version__
from racegate.report.cause.account import Account
from racegate.report.templating import render
from racegate.report.timeline.material import Material
from racegate.report.timeline.model import Timeline
from racegate.report.timeline.svg import svg_inside


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A line of what is known of a finding. term: what it says; is_code: it is to be copied"""

    term: str
    text: str
    is_code: bool = False


class PicturedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as the page has it. name: what it is of; outcome: a word; impact: what it does"""

    name: str
    outcome: str
    title: str
    impact: str
    facts: tuple[Fact, ...] = ()
    timeline: Timeline | None = None


def findings_page(title: str, found: Sequence[PicturedFinding]) -> str:
    """HTML."""
    shown = [
        {
            **msgspec.structs.asdict(one),
            "anchor": f"finding-{number}",
            "picture": "" if one.timeline is None else svg_inside(one.timeline),
        }
        for number, one in enumerate(found, start=1)
    ]
    return render("findings.html.j2", title=title, shown=shown, version=__version__)


def pictured_replay(name: str, outcome: str, material: Material | None) -> PicturedFinding:
    """What a replay showed. material: None if that was nothing"""
    if material is None:
        return PicturedFinding(name=name, outcome=outcome, title="nothing was found", impact="")
    return PicturedFinding(
        name=name,
        outcome=outcome,
        title=material.account.title,
        impact=material.impact,
        facts=tuple(_facts(material.account, material.result.schedule)),
        timeline=material.timeline,
    )


def _facts(account: Account, holds: Sequence[str]) -> Iterable[Fact]:
    for side in filter(None, (account.first, account.second)):
        yield Fact(term="pair", text=f"{side.name} on {side.lane} {side.verb}")
    yield Fact(term="edge", text=account.to_add)
    for hold in holds:
        yield Fact(term="hold", text=hold, is_code=True)
    if account.replay:
        yield Fact(term="again", text=account.replay, is_code=True)
