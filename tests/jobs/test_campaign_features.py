"""A campaign counts what its scenarios reach, over all of its runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from racegate.explore.features.table import NAMES
from racegate.faults.catalogue import find_fault
from racegate.jobs.campaign import Campaign, CampaignError
from racegate.jobs.generated import CampaignSpec, look_at
from racegate.jobs.stores.folder import STATE_FILE

SPEC = CampaignSpec(seed=0)


def test_a_campaign_adds_up_what_its_runs_reach(tmp_path: Path) -> None:
    reports = [look_at(SPEC, index, None, set()) for index in range(3)]
    for report in reports:
        campaign = Campaign(SPEC, tmp_path)
        campaign.add(report)
        state = campaign.save(0.0)
    assert state.features.runs == 3
    for name in NAMES:
        number = sum(name in report.features for report in reports)
        assert state.features.runs_with(name) == number
    assert state.features.runs_with("depth = 1") < 3


def test_a_scenario_with_a_fault_says_nothing_of_features(tmp_path: Path) -> None:
    fault = "correction-partial-fields"
    spec = CampaignSpec(seed=0, fault=fault)
    report = look_at(spec, 0, find_fault(fault), set())
    assert report.features == ()
    campaign = Campaign(spec, tmp_path)
    campaign.add(report)
    assert campaign.save(0.0).features.runs == 0


def test_a_folder_of_other_features_is_refused(tmp_path: Path) -> None:
    state = Campaign(SPEC, tmp_path).save(0.0)
    other = msgspec.structs.replace(state.features, features=NAMES[1:])
    changed = msgspec.structs.replace(state, features=other)
    (tmp_path / STATE_FILE).write_bytes(msgspec.json.encode(changed))
    with pytest.raises(CampaignError, match="other features"):
        Campaign(SPEC, tmp_path)
