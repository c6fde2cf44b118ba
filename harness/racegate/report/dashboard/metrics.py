"""The view for a monitor, in Prometheus's text form."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from racegate.jobs.stores.records import WorkerState
from racegate.report.objects import CampaignView, DashboardView
from racegate.scenario.untrusted.text import printable

LABELS = ("seed", "fault")


def metrics_of(view: DashboardView) -> bytes:
    """UTF-8 text."""
    registry = CollectorRegistry()
    registry.register(_Seen(view))
    return generate_latest(registry)


class _Seen(Collector):
    """Figures of one view."""

    def __init__(self, view: DashboardView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """In the order of the page."""
        view = self._view
        up = GaugeMetricFamily("racegate_store_up", "1 if the store answered, else 0.")
        up.add_metric((), float(view.problem is None))
        yield up
        yield from self._counters()
        verdicts = CounterMetricFamily(
            "racegate_campaign_verdicts", "Scenarios by verdict.", labels=(*LABELS, "verdict")
        )
        for one in view.campaigns:
            for verdict, count in one.verdicts.items():
                verdicts.add_metric((*_labels(one), printable(verdict)), count)
        yield verdicts
        yield self._workers()
        yield from self._findings()
        yield from self._targets()

    def _counters(self) -> Iterator[Metric]:
        """What only grows, and the pairs of features that can occur."""
        for name, text, value in (
            ("scenarios", "Scenarios looked at.", lambda one: one.scenarios),
            ("schedules", "Schedules run.", lambda one: one.schedules),
            ("work_seconds", "Time at work.", lambda one: one.seconds),
            ("set_aside", "Scenarios set aside.", lambda one: len(one.set_aside)),
            ("canaries", "Planted defects looked for.", lambda one: one.selfcheck.canaries),
            ("canaries_found", "Of these found.", lambda one: one.selfcheck.canaries_found),
            ("mismatches", "Runs made twice that differed.", lambda one: one.selfcheck.mismatches),
            ("feature_pairs", "Pairs of features that occurred.", lambda one: one.pairs_occurred),
        ):
            counter = CounterMetricFamily(f"racegate_campaign_{name}", text, labels=LABELS)
            for one in self._view.campaigns:
                counter.add_metric(_labels(one), value(one))
            yield counter
        possible = GaugeMetricFamily(
            "racegate_feature_pairs_possible", "Pairs of features that can occur.", labels=LABELS
        )
        for one in self._view.campaigns:
            possible.add_metric(_labels(one), one.pairs_possible)
        yield possible

    def _workers(self) -> Metric:
        """Of the last run of each campaign."""
        workers = GaugeMetricFamily(
            "racegate_workers", "Workers of the last run by state.", labels=(*LABELS, "state")
        )
        for one in self._view.campaigns:
            for state in WorkerState:
                workers.add_metric((*_labels(one), state), one.workers_in(state))
        return workers

    def _findings(self) -> Iterator[Metric]:
        """How many there are, and how often each was hit."""
        count = GaugeMetricFamily("racegate_findings", "Findings by signature.")
        count.add_metric((), len(self._view.findings))
        yield count
        hits = CounterMetricFamily(
            "racegate_finding_hits", "Scenarios that showed it.", labels=("signature",)
        )
        for one in self._view.findings:
            met = one.findability
            hits.add_metric((printable(one.signature),), 0 if met is None else met.hits)
        yield hits
        last = GaugeMetricFamily(
            "racegate_finding_last_seen_seconds", "When, since 1970.", labels=("signature",)
        )
        for one in self._view.findings:
            if one.seen is not None:
                last.add_metric((printable(one.signature),), one.seen.last)
        yield last

    def _targets(self) -> Iterator[Metric]:
        """Of fleets, by target."""
        scenarios = CounterMetricFamily(
            "racegate_target_scenarios", "Scenarios looked at.", labels=("target",)
        )
        hits = CounterMetricFamily(
            "racegate_target_hits", "Scenarios that showed it.", labels=("target", "signature")
        )
        if (matrix := self._view.targets) is not None:
            for one in matrix.targets:
                scenarios.add_metric((printable(one.name),), one.scenarios)
            for row in matrix.rows:
                for cell in row.cells:
                    hits.add_metric((printable(cell.target), printable(row.signature)), cell.hits)
        yield scenarios
        yield hits


def _labels(campaign: CampaignView) -> tuple[str, str]:
    return str(campaign.seed), printable(campaign.fault or "none")
