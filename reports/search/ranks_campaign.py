"""Drawn scenarios with ranks under drawn holds, until so many schedules were run. Goes on where it
was stopped.

    python reports/search/ranks_campaign.py reports/search/ranks_campaign --seed 30

FOLDER has a file for each seed, so several may run at once; what all came to is printed at the end.
Only scenarios with ranks count, and of these only schedules that hold something, each once. One of
each scenario is also run alone, which has to say the same. At each start the witnesses of faults
with ranks are run first, and have to be found.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec

from racegate.jobs.environment import environment
from racegate.scenario.untrusted.files import write_json

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from held_ranks import RanksCampaign, find_faults, look_at

WRITTEN_EVERY = 5


def main() -> None:
    """Adds to the file until it has so many schedules, or has a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--schedules", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=30)
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    out = given.folder / f"{given.seed}.json"
    if out.exists():
        found = msgspec.json.decode(out.read_bytes(), type=RanksCampaign)
    else:
        found = RanksCampaign(environment=environment(), seed=given.seed)
    begun, before = time.process_time(), found.cpu_s
    find_faults(found)
    while found.schedules < given.schedules and not found.findings:
        look_at(found, found.next_index)
        found.next_index += 1
        if found.scenarios % WRITTEN_EVERY == 0:
            found.cpu_s = round(before + time.process_time() - begun, 1)
            write_json(out, found)
    found.cpu_s = round(before + time.process_time() - begun, 1)
    write_json(out, found)
    print(total(given.folder))
    sys.exit(1 if found.findings else 0)


def total(folder: Path) -> str:
    """All seeds of a folder, in a line."""
    files = sorted(folder.glob("*.json"))
    parts = [msgspec.json.decode(one.read_bytes(), type=RanksCampaign) for one in files]
    schedules, scenarios = sum(one.schedules for one in parts), sum(one.scenarios for one in parts)
    findings, cpu_s = sum(len(one.findings) for one in parts), sum(one.cpu_s for one in parts)
    return (
        f"{schedules} schedules of {scenarios} scenarios with ranks, {len(parts)} seeds, "
        f"{findings} findings, {cpu_s:.0f} CPU s"
    )


if __name__ == "__main__":
    main()
