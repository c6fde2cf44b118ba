"""Witness files, replay, explain and fuzz, as a user sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_cli import ROOT, json_of, racegate

from racegate.check.repro.explain import Racing, explain_failure, explain_pair
from racegate.check.repro.minimise import minimise, witness_of
from racegate.check.repro.replay import replay
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import FaultKind
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import LATE
from racegate.history.witness import Witness, WitnessError, load_witness, save, sealed
from racegate.oracles.paths import ExplainError, Ordered
from racegate.scenario.settings import Cascade
from racegate.scenario.untrusted.text import many
from stored import with_subject
from support import IS_NIGHTLY, SCENARIOS

WITNESSES = sorted((SCENARIOS / "witnesses").glob("*.witness.json"))
TIMES = 100 if IS_NIGHTLY else 3
FINISH = "scenarios/finish_and_condense.toml"


@pytest.fixture(scope="module")
def witness() -> Witness:
    from support import scenario

    fault = find_fault("accepted-copy-after-row-move")
    small = minimise(scenario("finish-and-condense"), LATE, fault)
    return witness_of(small, fault, title="t", seed=0)


def test_a_witness_of_ours_is_made_smaller_where_every_witness_is(
    witness: Witness, tmp_path: Path
) -> None:
    """Its holds grow by one that it does not need, and it comes back as it was."""
    holds = (*witness.holds, "main/*:compute_logits@0 until forced")
    save(msgspec.structs.replace(witness, holds=holds), tmp_path / "w.witness.json")
    done = racegate("minimise", str(tmp_path / "w.witness.json"), "--witness", str(tmp_path / "to"))
    assert done.returncode == 0, done.stderr
    small = load_witness(tmp_path / "to" / "w.witness.json")
    assert (small.holds, small.signature) == (witness.holds, witness.signature)
    assert f", {many(len(witness.holds), 'hold')}, " in done.stderr


class TestWitnessFiles:
    def test_every_fault_has_a_committed_witness(self) -> None:
        recorded = {load_witness(path).fault for path in WITNESSES}
        assert recorded >= {f.name for f in FAULTS if f.kind is not FaultKind.CONTROL}

    @pytest.mark.parametrize("path", WITNESSES, ids=lambda path: path.stem)
    def test_committed_witnesses_replay(self, path: Path) -> None:
        witness = load_witness(path)
        result = replay(witness, times=TIMES, command="racegate replay")
        assert result.outcome is ReplayOutcome.REPRODUCED
        assert result.outcomes == {"reproduced": TIMES}
        assert result.digests == 1
        assert result.matches_record
        assert len(witness.holds) <= 2
        assert len(witness.scenario.requests) <= 3

    def test_a_witness_round_trips(self, witness: Witness, tmp_path: Path) -> None:
        path = tmp_path / "x.witness.json"
        save(witness, path)
        assert load_witness(path) == witness
        assert [p.name for p in tmp_path.iterdir()] == ["x.witness.json"]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"schema": "racegate.witness/9"}, "racegate.witness/9"),
            ({"schema": 1}, "written as 1"),
            ({"holds": ["d2h:accepted_counts@C.0 until host:reorder@C.1"]}, "altered"),
            ({"signature": "else"}, "altered"),
            ({"holds": ["a until b until c"]}, "cannot read the hold"),
            ({"colour": "red"}, "unknown field"),
            ({"subject": {"of": "engine", "fault": None, "seed": "0"}}, "Expected `int`"),
        ],
    )
    def test_what_is_not_understood_is_refused(
        self, witness: Witness, tmp_path: Path, change: dict[str, Any], reason: str
    ) -> None:
        path = tmp_path / "x.witness.json"
        path.write_text(json.dumps(msgspec.to_builtins(witness) | change))
        with pytest.raises(WitnessError, match=reason):
            load_witness(path)
        result = racegate("replay", str(path))
        assert result.returncode == 2
        assert "x.witness.json" in result.stderr

    def test_a_truncated_file_is_refused(self, witness: Witness, tmp_path: Path) -> None:
        path = tmp_path / "x.witness.json"
        save(witness, path)
        path.write_bytes(path.read_bytes()[:-50])
        with pytest.raises(WitnessError, match="truncated or not JSON"):
            load_witness(path)

    def test_no_schema_no_file_no_witness(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text("[1]")
        with pytest.raises(WitnessError, match="no schema"):
            load_witness(tmp_path / "x.json")
        with pytest.raises(WitnessError, match="cannot be read"):
            load_witness(tmp_path / "none.json")


class TestReplay:
    def write(self, witness: Witness, folder: Path, **changes: Any) -> str:
        path = folder / "x.witness.json"
        save(sealed(msgspec.structs.replace(witness, **changes)), path)
        return str(path)

    def test_reproduced_is_exit_code_1(self, witness: Witness, tmp_path: Path) -> None:
        shown = json_of("replay", self.write(witness, tmp_path), "--times", "5", code=1)
        assert shown["outcome"] == "reproduced"
        assert (shown["times"], shown["digests"], shown["matches_record"]) == (5, 1, True)

    def test_another_signature_is_exit_code_5(self, witness: Witness, tmp_path: Path) -> None:
        path = self.write(witness, tmp_path, signature="divergence/else")
        result = racegate("replay", path)
        assert result.returncode == 5
        assert "other signature" in result.stdout
        assert witness.signature in result.stdout

    def test_nothing_is_exit_code_6(self, witness: Witness, tmp_path: Path) -> None:
        # A witness without holds, replayed on the correct engine: the defect has been mended.
        path = SCENARIOS / "witnesses" / "correction-partial-fields.witness.json"
        result = racegate(
            "replay", self.write(with_subject(load_witness(path), fault=None), tmp_path)
        )
        assert result.returncode == 6
        assert "nothing found" in result.stdout

    def test_an_unrealised_hold_is_exit_code_4(self, witness: Witness, tmp_path: Path) -> None:
        path = self.write(witness, tmp_path, holds=("d2h:nothing@1 until host:condense@2",))
        assert racegate("replay", path).returncode == 4

    def test_other_bits_are_said(self, witness: Witness, tmp_path: Path) -> None:
        result = racegate("replay", self.write(witness, tmp_path, digest="0"))
        assert result.returncode == 1
        assert "not the bits of the recorded run" in result.stdout

    def test_of_several_each_says_what_gave_way(self, witness: Witness, tmp_path: Path) -> None:
        engine = msgspec.structs.replace(witness.scenario.engine, cascade=Cascade.ON)
        assert (engine.depth, engine.draft_len_max) > (1, 0)
        scenario = msgspec.structs.replace(witness.scenario, engine=engine)
        asked = self.write(witness, tmp_path, scenario=scenario)
        plain = str(SCENARIOS / "witnesses" / "correction-partial-fields.witness.json")
        first, second = json_of("replay", asked, plain, code=1)["replays"]
        assert [change["option"] for change in first["resolved"]] == ["cascade"]
        assert second["resolved"] == []
        told = racegate("replay", asked, plain).stdout
        assert f"warning: {Path(asked).name}: " in told
        assert "cascade on becomes off" in " ".join(told.split())

    def test_of_several_the_worst_is_the_exit_code(self, witness: Witness, tmp_path: Path) -> None:
        names = ("accepted-copy-after-row-move", "correction-partial-fields")
        paths = [str(SCENARIOS / "witnesses" / f"{name}.witness.json") for name in names]
        result = racegate("replay", *paths, "--times", "2")
        assert result.returncode == 1
        assert result.stdout.count("2 of 2") == 2
        mended = self.write(with_subject(load_witness(Path(paths[1])), fault=None), tmp_path)
        shown = json_of("replay", paths[0], mended, code=6)
        assert "commit" in shown["environment"]
        first, second = shown["replays"]
        assert (first["file"], first["fault"]) == (f"{names[0]}.witness.json", names[0])
        assert first["holds"] == ["d2h:accepted_counts@C.0 until host:condense@C.1"]
        assert (first["outcome"], second["outcome"]) == ("reproduced", "nothing found")
        assert "last" not in first

    def test_run_writes_a_witness(self, tmp_path: Path) -> None:
        path = tmp_path / "new.witness.json"
        fault = "accepted-copy-after-row-move"
        arguments = ("--fault", fault, "--explore", "ladder", "--witness", str(path))
        result = racegate("run", FINISH, *arguments)
        assert result.returncode == 1
        witness = load_witness(path)
        assert witness.fault == fault
        assert f"racegate: wrote {path}: 2 requests, " in result.stderr
        assert f"racegate replay {path}\n" in result.stderr
        assert f"racegate: minimal hold: {witness.holds[0]}\n" in result.stderr
        assert racegate("run", FINISH, "--witness", str(tmp_path / "no")).returncode == 2


class TestExplain:
    def test_a_witness_names_the_race_and_the_hold_that_decides(
        self, witness: Witness, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.witness.json"
        save(witness, path)
        result = racegate("explain", str(path))
        assert result.returncode == 0
        assert result.stdout.count("nothing orders it with") == 1, "the pair is told once"
        assert "race on accepted_counts_cpu" not in result.stdout
        assert "accepted-landed, which comes too late" in result.stdout
        assert "This one would protect it:" in result.stdout
        shown = json_of("explain", str(path))
        assert shown["difference"]["passing"] == []
        assert shown["difference"]["failing"] == list(witness.holds)
        assert shown["race"]["first"].startswith("d2h:accepted_counts@")

    def test_an_ordered_pair_is_refuted_with_its_path(self) -> None:
        # The theory of vllm#42603: a write and a kernel on the same stream race. They do not.
        result = racegate(
            "explain", FINISH, "--pair", "kernel:next_token@2", "kernel:correct_computed@3"
        )
        assert result.returncode == 0
        assert "stream order on compute" in result.stdout
        assert "this is not the race" in result.stdout

    def test_pairs(self) -> None:
        from support import checker

        clean = checker("finish-and-condense").execute().trace
        found = explain_pair(clean, "host:correct@3", "d2h:valid_count@2")
        assert isinstance(found, Ordered)
        assert found.first == "d2h:valid_count@2"
        assert any("valid-count-landed" in step.by for step in found.path)
        fault = find_fault("accepted-copy-after-row-move")
        racy = checker("finish-and-condense").execute(fault=fault).trace
        race = explain_pair(racy, "d2h:accepted_counts@3", "host:condense@4")
        assert isinstance(race, Racing)
        assert race.buffer == "accepted_counts_cpu"
        with pytest.raises(ExplainError, match=r"no operation .*near it: d2h:"):
            explain_pair(clean, "d2h:sampled@99", "host:correct@3")
        with pytest.raises(ExplainError, match="share no memory"):
            explain_pair(clean, "d2h:sampled@3", "h2d:input_ids@4")

    def test_a_logic_fault_has_no_race_and_no_deciding_hold(self) -> None:
        from support import checker

        fault = find_fault("correction-partial-fields")
        explained = explain_failure(checker("steady-mixed-accepts"), parse(), fault)
        assert explained.race is None
        assert explained.difference is None

    def test_a_scenario_without_a_pair_is_a_usage_error(self) -> None:
        assert racegate("explain", FINISH).returncode == 2


def parse() -> Any:
    from racegate.history.schedule import parse_schedule

    return parse_schedule([])


class TestFuzz:
    FAULT = ("--fault", "correction-partial-fields")

    def test_it_finds_minimises_and_writes(self, tmp_path: Path) -> None:
        shown = json_of("fuzz", "--scenarios", "12", "--out", str(tmp_path), *self.FAULT, code=1)
        assert shown["new"]
        for found in shown["new"]:
            assert found["is_minimal"]
            assert (found["shrink_runs"] <= 300, found["requests"] <= 3) == (True, True)
        for path in tmp_path.glob("*.witness.json"):
            result = replay(load_witness(path), times=2, command="")
            assert result.outcome is ReplayOutcome.REPRODUCED

    def test_a_second_run_goes_on_and_reports_nothing_twice(self, tmp_path: Path) -> None:
        first = json_of("fuzz", "--scenarios", "8", "--out", str(tmp_path), *self.FAULT, code=1)
        again = racegate(
            "fuzz", "--scenarios", "8", "--out", str(tmp_path), *self.FAULT, "--json", "-"
        )
        assert again.returncode == 1, "what was found before is still found"
        shown = json.loads(again.stdout)
        assert shown["new"] == []
        assert set(shown["known"]) >= {found["signature"] for found in first["new"]}
        assert shown["campaign"]["done"] == 8

    def test_the_number_of_workers_does_not_matter(self, tmp_path: Path) -> None:
        bounded = ("fuzz", "--scenarios", "10", *self.FAULT)
        runs = [
            json_of(*bounded, "--workers", str(n), "--out", str(tmp_path / f"{n}"), code=1)
            for n in (1, 2)
        ]
        assert runs[0]["new"] == runs[1]["new"]
        timed = {"seconds": 0, "selfcheck": 0, "workers": 0, "began": 0, "moments": 0}
        untimed = [run["campaign"] | timed | {"seen": set(run["campaign"]["seen"])} for run in runs]
        assert untimed[0] == untimed[1]
        for path in (tmp_path / "1").glob("*.witness.json"):
            assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes()

    def test_a_campaign_goes_on_with_other_workers(self, tmp_path: Path) -> None:
        def fuzz(folder: str, *bounds: str) -> set[str]:
            racegate("fuzz", "--out", str(tmp_path / folder), *bounds, *self.FAULT)
            return {path.name for path in (tmp_path / folder).glob("*.witness.json")}

        whole = fuzz("a", "--scenarios", "6")
        fuzz("b", "--scenarios", "3", "--workers", "2")
        assert fuzz("b", "--scenarios", "6") == whole != set()

    def test_fault_free_it_finds_nothing(self, tmp_path: Path) -> None:
        shown = json_of("fuzz", "--scenarios", "10", "--holds", "5", "--out", str(tmp_path))
        assert shown["campaign"]["verdicts"] == {"PROVED": 10}
        assert shown["campaign"]["schedules"] == 60

    def test_a_kill_loses_nothing_found(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", "from racegate.cli.start import main; main()", "fuzz"]
        arguments = ["--seconds", "60", "--out", str(tmp_path), *self.FAULT]
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait_for(lambda: any(tmp_path.glob("*.witness.json")))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for path in tmp_path.glob("*.witness.json"):
            load_witness(path)

    @pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to see workers in")
    def test_workers_end_with_a_campaign_that_is_killed(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", "from racegate.cli.start import main; main()", "fuzz"]
        process = subprocess.Popen(
            [*command, "--seconds", "600", "--workers", "2", "--out", str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait_for(lambda: (tmp_path / "campaign.json").exists())
            assert len(_alive_in(process.pid)) > 2
            process.kill()
            process.wait()
            _wait_for(lambda: not _alive_in(process.pid))
        finally:
            for one in _alive_in(process.pid):
                os.kill(one, signal.SIGKILL)

    def test_another_campaigns_folder_is_refused(self, tmp_path: Path) -> None:
        racegate("fuzz", "--scenarios", "1", "--out", str(tmp_path))
        result = racegate("fuzz", "--scenarios", "1", "--seed", "5", "--out", str(tmp_path))
        assert result.returncode == 2
        assert "seed 0" in result.stderr
        state = tmp_path / "campaign.json"
        state.write_text(state.read_text().replace("campaign/5", "campaign/1"))
        result = racegate("fuzz", "--scenarios", "1", "--out", str(tmp_path))
        assert result.returncode == 2
        assert "another folder" in result.stderr

    def test_it_wants_a_bound(self, tmp_path: Path) -> None:
        assert racegate("fuzz", "--out", str(tmp_path)).returncode == 2


def _alive_in(group: int) -> list[int]:
    """Processes of a process group that have not ended."""
    alive = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            alive.append(int(path.parent.name))
    return alive


def _wait_for(is_done: Any) -> None:
    """Polls for what another process does; the test's own timeout bounds it."""
    while not is_done():
        time.sleep(0.05)
