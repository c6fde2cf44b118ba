"""Campaigns of generated scenarios: files of the present ones, a line for each replaced one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from racegate.report.site.charts import Tone
from racegate.report.site.grids import Grid, GridCell
from racegate.report.site.reports import Reports
from racegate.report.site.shapes import CampaignFile, ReplacedCampaign

CAMPAIGNS, REPLACED = "search/campaign*.json", "search/campaigns.json"


def named_campaigns(reports: Reports) -> Iterator[tuple[str, CampaignFile]]:
    """Campaigns with their names: those that were replaced, then the others. Raises SiteError."""
    if reports.has(REPLACED):
        for line in reports.read(REPLACED, tuple[ReplacedCampaign, ...]):
            yield line.name, line.file
    for file in reports.matching(CAMPAIGNS):
        if file != REPLACED:
            yield file.rpartition("/")[2], reports.read(file, CampaignFile)


def campaigns_grid(campaigns: Iterable[tuple[str, CampaignFile]]) -> Grid:
    """Campaigns without a fault: what was looked at, and what was found."""
    return Grid(
        title="Campaigns of generated scenarios, without a fault",
        note="A finding here would be a defect of the engine or of an oracle.",
        file=CAMPAIGNS,
        columns=(
            "campaign",
            "seed",
            "scenarios",
            "verdicts",
            "schedules",
            "schedules/s",
            "findings",
            "canaries",
            "runs made twice",
        ),
        rows=tuple(_campaign(name, one) for name, one in campaigns),
    )


def _campaign(name: str, one: CampaignFile) -> tuple[GridCell, ...]:
    campaign, checks = one.campaign, one.campaign.selfcheck
    tone = Tone.BAD if one.findings else Tone.GOOD
    verdicts = ", ".join(f"{count:,} {word}" for word, count in campaign.verdicts.items())
    texts = [
        name,
        str(campaign.seed),
        f"{campaign.scenarios:,}",
        verdicts,
        f"{campaign.schedules:,}",
        f"{campaign.per_second:,.0f}",
    ]
    told = ["not kept", "not kept"]
    if checks is not None:
        told = [
            f"{checks.canaries_found} of {checks.canaries} found",
            f"{checks.double_runs:,}, {checks.mismatches} differed",
        ]
    return (
        *(GridCell(text=text) for text in texts),
        GridCell(text=f"{tone.symbol} {one.findings}", tone=tone),
        *(GridCell(text=text) for text in told),
    )
