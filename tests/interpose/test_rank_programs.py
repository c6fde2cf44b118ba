"""Small programs of several ranks on the virtual device, each with what is found in it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from rank_programs.registry import THEMES, Expected, load

from cuda_torch import needs_cuda_torch
from racegate.history.finding import FindingKind, Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import parse_holds
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind, Ending
from racegate.targets.program.judge import ProgramVerdict, judge_on, under
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.repairs.proof import repair_program
from racegate.targets.program.workflow.replay import replay_program
from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES, save_witnesses

HERE = Path(__file__).parent
PROGRAMS = load()
pytestmark = needs_cuda_torch


def found_by(device: DeviceServer, name: str) -> ProgramVerdict:
    one = PROGRAMS[name]
    program = Program((str(HERE / "rank_one.py"), one.theme, name), timeout_s=120, ranks=one.ranks)
    return judge_on(device, program, explores=False, runs_max=1, is_quiet=True)


def expected_of(found: ProgramVerdict) -> Expected:
    """What was found, as a program states it."""
    kinds = {one.kind.value for one in found.disagreements}
    if found.races:
        kinds.add("conflict")
    if kinds:
        return Expected("+".join(sorted(kinds)))
    assert found.shown.ending in (Ending.FINISHED, Ending.FAILED), found.shown.message
    return Expected.SILENT if found.is_finished else Expected.FAILS


def run_text(
    device: DeviceServer, text: str, folder: Path, *, holds: str = "", explores: bool = False
) -> ProgramVerdict:
    """Judges a script of two ranks, or runs it under a hold."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    program = Program((str(script),), timeout_s=120, ranks=2)
    if holds:
        return under(device, program, parse_holds([holds]))
    return judge_on(device, program, explores=explores, runs_max=16, is_quiet=True)


HANGS = """
    import os, threading
    import torch.distributed as dist

    dist.init_process_group("nccl")
    if os.environ["RANK"] == "1":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
"""


def test_what_hangs_for_another_reason_is_no_finding(device: DeviceServer, tmp_path: Path) -> None:
    found = run_text(device, HANGS, tmp_path)
    assert found.exit_code == 3
    assert "rank 1 stood at script.py:9" in found.shown.message


ON_ONE_GPU = """
    import torch, torch.distributed as dist

    dist.init_process_group("nccl")
    dist.all_reduce(torch.zeros(4, device="cuda:0"))
"""


def test_two_ranks_on_one_gpu_are_refused_as_nccl_does(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = run_text(device, ON_ONE_GPU, tmp_path)
    assert found.exit_code == 3
    assert "two ranks of one communicator on GPU 0" in found.shown.message


HELD = """
    import os
    import racegate, torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    x = torch.full((4,), float(rank + 1), device="cuda")
    y = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y.copy_(x)
    dist.all_reduce(y)
    racegate.observe("y", y)
    dist.destroy_process_group()
"""


def test_a_hold_names_its_rank(device: DeviceServer, tmp_path: Path) -> None:
    """The copy of rank 1 comes too late for the sum; that of rank 0 does not."""
    hold = "copy_@script.py:<module>#1 of rank 1 until forced"
    found = run_text(device, HELD, tmp_path, holds=hold)
    assert found.shown.realised == {hold: 1}
    assert [one.preview for one in found.base.observations] == ["[3.0, 3.0, 3.0, 3.0]"] * 2
    assert [one.name for one in found.base.observations] == ["y of rank 0", "y of rank 1"]
    assert found.shown.observations != found.base.observations


UNWAITED = """
    import os
    import racegate, torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    x = torch.full((4,), float(rank + 1), device="cuda")
    torch.cuda.synchronize()
    work = dist.all_reduce(x, async_op=True)
    y = x + 1
    work.wait()
    racegate.observe("y", y)
    dist.destroy_process_group()
"""


def test_a_collective_that_lands_early_is_a_landing_too(
    device: DeviceServer, tmp_path: Path
) -> None:
    """By itself it lands late, so a search has to try the other way."""
    found = run_text(device, UNWAITED, tmp_path, explores=True)
    assert found.verdict is Verdict.DIVERGENT
    (judged,) = found.judged
    assert judged.landing is not None
    (hold,) = judged.landing.holds
    assert hold.text() == (
        "all_reduce@script.py:<module>#1 of rank 0 until add@script.py:<module>#1 of rank 0"
    )
    program = Program((str(tmp_path / "script.py"),), ranks=2)
    (path,) = save_witnesses(found, program, tmp_path / "ranks.witness.json")
    witness = PROGRAM_WITNESSES.load(path)
    assert (witness.subject.ranks, witness.holds) == (2, (hold.text(),))
    again = replay_program(device, witness, times=1, timeout_s=120)
    assert (again.outcome, again.matches_record) == (ReplayOutcome.REPRODUCED, True)
    with pytest.raises(BadInput, match="not of ranks"):
        repair_program(device, witness.subject.checked(DeviceKind.VIRTUAL))


DISAGREEING = """
    import os
    import racegate, torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    x = torch.ones(4, device="cuda")
    for step in range(3):
        accepted = 1 if step == 1 and rank == 1 else 2
        racegate.agree("accepted", accepted)
        if accepted > 1:
            dist.all_reduce(x)
    x.sum().item()
"""


def test_the_value_that_differs_is_named_before_what_it_spoils(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = run_text(device, DISAGREEING, tmp_path)
    value, stuck = found.disagreements
    assert value.kind is FindingKind.DIVERGENCE
    assert value.title == "value 2 that all ranks are to agree on, accepted, differs"
    assert [one.what for one in value.places] == ["has accepted = 2", "has accepted = 1"]
    assert stuck.kind is FindingKind.DEADLOCK
    assert found.exit_code == 1


BESIDE_GLOO = """
    import os
    import racegate, torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")


    def trained(device, group):
        torch.manual_seed(rank)  # other weights on each rank: the first one's go to all
        layers = [torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
        model = torch.nn.Sequential(*layers).to(device)
        model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(100 + rank)
        for step in range(3):
            model(torch.randn(8, 16).to(device)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return torch.cat([one.detach().flatten().cpu() for one in model.parameters()])


    on_gpus = trained("cuda", None)
    on_hosts = trained("cpu", dist.new_group(backend="gloo"))
    racegate.agree("parameters", on_gpus)
    racegate.observe("is equal", torch.equal(on_gpus, on_hosts))
    dist.destroy_process_group()
"""


def test_ddp_trains_bit_for_bit_as_with_gloo(device: DeviceServer, tmp_path: Path) -> None:
    """Its buckets and its averages are torch's own: only who exchanges them differs."""
    found = run_text(device, BESIDE_GLOO, tmp_path)
    assert found.exit_code == 0, found.shown.message
    values = [one.preview for one in found.base.observations if "is equal" in one.name]
    assert values == ["True", "True"]


@pytest.mark.parametrize("theme", THEMES)
def test_every_program_is_found_to_be_what_it_is(device: DeviceServer, theme: str) -> None:
    programs = [one for one in PROGRAMS.values() if one.theme == theme]
    assert {one.name: expected_of(found_by(device, one.name)) for one in programs} == {
        one.name: one.expected for one in programs
    }
