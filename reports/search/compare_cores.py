"""The compiled core and the Python that it was written after, on the same scenarios. Goes on where
it was stopped.

    python reports/search/compare_cores.py reports/search/compared_cores.json --scenarios 20000

First all scripts, all witnesses and all faults on their scripts; then drawn scenarios, each eagerly
and with drawn holds, one in four with a fault. Of one in twenty, four schedules that share what
they have in common and the first classes of a reduction are made on both too: checkpoints are in C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from racegate.jobs.environment import environment
from racegate.scenario.untrusted.files import write_json

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from both_cores import Compared, compare_drawn, compare_tree

WRITTEN_EVERY = 50


def main() -> None:
    """Adds to the file until it has so many scenarios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenarios", type=int, default=20_000)
    given = parser.parse_args()
    if given.out.exists():
        found = msgspec.json.decode(given.out.read_bytes(), type=Compared)
    else:
        found = Compared(environment=environment())
        compare_tree(found)
    for index in range(found.scenarios, given.scenarios):
        compare_drawn(found, index)
        if found.scenarios % WRITTEN_EVERY == 0:
            write_json(given.out, found)
    write_json(given.out, found)
    sys.exit(1 if found.differences else 0)


if __name__ == "__main__":
    main()
