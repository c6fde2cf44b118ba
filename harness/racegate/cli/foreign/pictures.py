"""What the gates of targets that are not ours write of what they found: one page of all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from racegate.cli.options import write_text
from racegate.history.outcome import RunResult


def write_results_page(html: Path | None, results: Sequence[RunResult]) -> None:
    """If it was asked for. jinja2 is imported for it and nothing else."""
    if html is None:
        return
    from racegate.report.finding.page import findings_page
    from racegate.report.finding.race import pictured_results

    targets = dict.fromkeys(result.target or result.scenario for result in results)
    write_text(html, findings_page(f"Findings in {', '.join(targets)}", pictured_results(results)))
