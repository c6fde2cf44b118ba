"""Programs that start their ranks themselves: each process has a device, and all are judged."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from cuda_torch import needs_cuda_torch
from racegate.history.finding import FindingKind
from racegate.interpose.errors import ExitCode
from racegate.interpose.outcome import Ending
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, Program
from racegate.targets.program.ranks import LOST

pytestmark = needs_cuda_torch

SPAWNING = """
    import os, sys
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp

    def work(rank, ranks, store):
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", f"file://{store}", rank=rank, world_size=ranks)
        x = torch.full((4,), float(rank + 1), device="cuda")
        work = dist.all_reduce(x, async_op=True)
        y = x + 1
        work.wait()
        if rank == 0:
            dist.all_reduce(y)
            torch.cuda.synchronize()

    if __name__ == "__main__":
        ranks = torch.cuda.device_count()
        mp.spawn(work, args=(ranks, sys.argv[1]), nprocs=ranks)
"""

TRAINING = """
    import os
    import racegate, torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    layer = torch.nn.Linear(8, 8).cuda()
    model = torch.nn.parallel.DistributedDataParallel(layer)
    model(torch.full((4, 8), dist.get_rank() + 1.0, device="cuda")).sum().backward()
    racegate.observe("bias", layer.bias.grad)
    dist.destroy_process_group()
"""


def judged(
    device: DeviceServer, folder: Path, text: str, before: tuple[str, ...], *args: str
) -> ProgramVerdict:
    """A run of a script that sees two GPUs. before: what runs it, empty for Python alone"""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    program = Program((*before, str(script), *args), timeout_s=300, gpus=2)
    return judge_on(device, program, explores=False, runs_max=1, is_quiet=True)


def test_spawned_ranks_are_judged_together(device: DeviceServer, tmp_path: Path) -> None:
    """Both read too early, and rank 1 ends without the second sum: it waits for nobody, and nothing
    of the program is left.
    """
    found = judged(device, tmp_path, SPAWNING, (), str(tmp_path / "store"))
    assert found.shown.ending is Ending.STUCK, found.shown.message
    (stuck,) = found.disagreements
    assert stuck.kind is FindingKind.DEADLOCK
    assert [(one.rank, bool(one.stack)) for one in stuck.places] == [(0, True), (1, False)]
    (race,) = found.races
    assert (race.first.operation, race.second.operation) == ("all_reduce", "add")
    assert {one.rpartition(" of ")[2] for pair in race.pairs for one in pair} == {
        "rank 0",
        "rank 1",
    }
    assert found.shown.ranks == 2


def test_torchrun_starts_ranks_with_devices(device: DeviceServer, tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = judged(device, tmp_path, TRAINING, launcher)
    assert found.shown.ending is Ending.FINISHED, found.shown.message
    assert (found.exit_code, found.shown.ranks) == (0, 2)
    observed = {one.name: one.digest for one in found.shown.observations}
    assert observed.keys() == {"bias of rank 0", "bias of rank 1"}
    assert len(set(observed.values())) == 1


ENDED = """
    import multiprocessing as mp
    import torch

    def work(queue):
        queue.put(torch.ones(4, device="cuda").tolist())
        queue.get()

    if __name__ == "__main__":
        torch.ones(4, device="cuda").sum().item()
        spawn = mp.get_context("spawn")
        queue = spawn.Queue()
        child = spawn.Process(target=work, args=(queue,))
        child.start()
        print(queue.get())
        child.terminate()
        child.join()
"""


def test_a_process_that_is_ended_before_it_has_told_is_no_pass(
    device: DeviceServer, tmp_path: Path
) -> None:
    """As the workers of a `multiprocessing.Pool` are."""
    found = judged(device, tmp_path, ENDED, ())
    assert found.shown.ending is Ending.FINISHED, found.shown.message
    assert found.unmet == (f"{LOST}: 1",)
    assert found.exit_code == ExitCode.INCONCLUSIVE


SERVED = """
    import multiprocessing as mp
    # head

    def work(number):
        import torch

        staged = torch.empty(4, pin_memory=True)
        landed = torch.full((4,), float(number), device="cuda")
        staged.copy_(landed, non_blocking=True)
        return staged.sum().item()

    if __name__ == "__main__":
        import torch

        torch.ones(4, device="cuda").sum().item()
        with mp.get_context("forkserver").Pool(1) as pool:
            print(pool.map(work, [1, 2]))
            pool.close()
            pool.join()
"""


@pytest.mark.parametrize("head", ["import torch", ""], ids=["before it begins", "at work"])
def test_a_process_of_a_fork_server_tells_what_it_found(
    device: DeviceServer, tmp_path: Path, head: str
) -> None:
    """It ends by `os._exit`, behind what multiprocessing runs. head: where it imports torch"""
    found = judged(device, tmp_path, SERVED.replace("# head", head), ())
    assert found.shown.ending is Ending.FINISHED, found.shown.message
    assert found.unmet == ()
    (race,) = found.races
    assert (race.first.operation, race.second.operation) == ("d2h", "host read (sum)")
