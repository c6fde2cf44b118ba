"""Judges public races and disagreements that need two ranks, in a faulty and a repaired release.

    python reports/interposer/programs/of_ranks.py --releases FOLDER OUT [NAME ...]

FOLDER has a folder for each release, as `pip install --no-deps --target FOLDER/NAME==VERSION
NAME==VERSION` makes it, and one called `common` with what these import. OUT gets `ranks.json` and
`ranks.md`; with names, the other cases stay in them as they are. Exit 1 if a verdict is not the
expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from programs.catalogue import Expected
from racegate.jobs.versions.programs import word_of
from racegate.scenario.untrusted.files import write_json
from racegate.targets.program.environment import JudgedProgram, judge_in

_PLACES = re.compile(r"/\S*?/site-packages/|/\S*?/[\w.-]+==[\w.]+/")


@dataclass(frozen=True, slots=True)
class RankCase:
    """One script in one release. ranks: 0 where they are threads of one process

    public: the issue or pull request that says the same
    """

    script: str
    arguments: tuple[str, ...]
    release: str
    ranks: int
    expected: Expected
    public: str

    @property
    def name(self) -> str:
        return "-".join((self.script, *self.arguments, self.release.partition("==")[2]))

    @property
    def command(self) -> list[str]:
        """As a user types it."""
        options = ["--ranks", str(self.ranks)] if self.ranks else []
        return ["racegate", "torch", "run", *options, f"{self.script}.py", *self.arguments]


def _pair(
    script: str, *arguments: str, name: str, faulty: str, repaired: str, public: str, ranks: int = 2
) -> tuple[RankCase, RankCase]:
    bad, good = f"{name}=={faulty}", f"{name}=={repaired}"
    return (
        RankCase(script, arguments, bad, ranks, Expected.RACY, public),
        RankCase(script, arguments, good, ranks, Expected.SILENT, public),
    )


CASES = [
    *_pair(
        "torch_threaded_group",
        name="torch",
        faulty="2.14.1",
        repaired="2.15.0",
        public="pytorch/pytorch#195281",
        ranks=0,
    ),
    *_pair(
        "fsdp_reduce_hook",
        name="torch",
        faulty="2.14.1",
        repaired="2.15.0",
        public="pytorch/pytorch#180900",
    ),
    *_pair(
        "fsdp_optimizer_hook",
        name="torch",
        faulty="2.11.0",
        repaired="2.14.1",
        public="pytorch/pytorch#180666",
    ),
    *_pair(
        "megatron_instances",
        name="megatron-core",
        faulty="0.15.2",
        repaired="0.19.2",
        public="NVIDIA/Megatron-LM#3670",
    ),
    *_pair(
        "deepspeed_overlap",
        "2",
        "contiguous",
        name="deepspeed",
        faulty="0.17.4",
        repaired="0.17.5",
        public="deepspeedai/DeepSpeed#7371",
    ),
    *_pair(
        "torchmetrics_list_state",
        name="torchmetrics",
        faulty="1.3.2",
        repaired="1.4.0",
        public="Lightning-AI/torchmetrics#2463",
    ),
]


def judge(case: RankCase, releases: Path) -> JudgedProgram:
    """The verdict of one case. Raises BadInput if there is none."""
    folders = [releases / case.release, releases / "common"]
    ours = [HERE.parents[2] / folder for folder in ("harness", "kernels", "reference")]
    options = ["--ranks", str(case.ranks)] if case.ranks else []
    return judge_in(
        Path(sys.executable),
        (f"{case.script}.py", *case.arguments),
        *options,
        folder=HERE,
        variables={"PYTHONPATH": os.pathsep.join(map(str, [*folders, *ours]))},
    )


def word(found: JudgedProgram) -> str:
    """What ranks do wrong together, or the verdict on their accesses."""
    kinds = [one.kind.value.upper() for one in found.result.disagreements]
    return "+".join(kinds) or word_of(found.result)


def is_right(case: RankCase, found: JudgedProgram) -> bool:
    """Whether something is found in what is faulty, and nothing in what is repaired."""
    is_racy = case.expected is Expected.RACY
    return found.exit_code == int(is_racy) and bool(found.result.findings) == is_racy


def report_of(case: RankCase, found: JudgedProgram) -> dict[str, Any]:
    """What is committed of a case: nothing in it names a place of this machine."""
    told = {
        "name": case.name,
        "command": case.command,
        "release": case.release,
        "public": case.public,
        "torch": found.result.torch_version,
        "expected": case.expected.value,
        "verdict": word(found),
        "events": found.result.stats.ops,
        "cpu_s": found.cpu_s,
        "findings": [one.message for one in found.result.findings],
    }
    return json.loads(_PLACES.sub("", json.dumps(told)))  # type: ignore[no-any-return]


def table_of(reports: list[dict[str, Any]]) -> str:
    """The page of all cases."""
    rows = [
        f"| {_link(one['public'])} | {one['release']} | {one['verdict']} | {len(one['findings'])} "
        f"| {one['events']} | `{' '.join(one['command'])}` |"
        for one in reports
    ]
    return "\n".join([_HEAD, *rows, ""])


def _link(public: str) -> str:
    repository, _, number = public.partition("#")
    return f"[{public}](https://github.com/{repository}/issues/{number})"


_HEAD = """# Public races and disagreements that need ranks

Written by `of_ranks.py`: each program is a short script of ours around an untouched release from
the package index, on the virtual device. The release is the first folder of `PYTHONPATH`.

| public | release | verdict | findings | events | command |
| --- | --- | --- | ---: | ---: | --- |"""


def main() -> int:
    """Judges what is named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    target = options.out / "ranks.json"
    reports = {one["name"]: one for one in json.loads(target.read_text())} if options.names else {}
    wrong = 0
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        found = judge(case, options.releases.absolute())
        wrong += not is_right(case, found)
        mark = "" if is_right(case, found) else f"   EXPECTED {case.expected}"
        print(f"{case.name}: {word(found)}, {found.cpu_s} CPU s{mark}", flush=True)
        reports[case.name] = report_of(case, found)
    known = [reports[case.name] for case in CASES if case.name in reports]
    write_json(target, known)
    (options.out / "ranks.md").write_text(table_of(known))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
