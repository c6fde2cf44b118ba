"""What the gates of unmodified engines draw: each conflict as a picture, on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from racegate.cli.options import write_text
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.result import change_lines, replay_command, wrong_lines
from racegate.targets.common.search import Effect

if TYPE_CHECKING:
    from racegate.report.timeline.several import PicturedFinding


def write_engine_page(html: Path | None, judged: Sequence[tuple[Path, ReleaseVerdict]]) -> None:
    """If it was asked for. judged: with the files of the scenarios"""
    if html is None:
        return
    from racegate.report.timeline.several import findings_page

    titles = dict.fromkeys(found.cell.title for _, found in judged)
    shown = [one for path, found in judged for one in _pictured(found, str(path))]
    write_text(html, findings_page(f"Findings in {', '.join(titles)}", shown))


def _pictured(judged: ReleaseVerdict, scenario: str) -> Iterator[PicturedFinding]:
    """What is wrong when nothing is held, then what races: what does harm comes first."""
    from racegate.report.timeline.program import pictured_conflict
    from racegate.report.timeline.several import PicturedFinding

    if wrong := wrong_lines(judged.shown):
        yield PicturedFinding(
            name=judged.scenario,
            outcome="wrong",
            title="wrong in the run that was made",
            impact="; ".join(wrong),
        )
    for one in sorted(judged.judged, key=lambda one: list(Effect).index(one.effect)):
        landing = one.landing
        changes = [] if landing is None else change_lines(landing)
        yield pictured_conflict(
            one.race,
            one.holds,
            name=judged.scenario,
            outcome=one.effect,
            impact="; ".join(changes),
            replay="" if landing is None else replay_command(judged, scenario, landing.holds),
        )
