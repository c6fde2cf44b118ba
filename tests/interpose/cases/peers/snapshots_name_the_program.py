# expect = "silent"
# says = ["no conflict"]
"""A snapshot of the allocator names the program's lines, not those of what computes operators."""

import torch


def frames_of(nbytes):
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if (block["requested_size"], block["state"]) == (nbytes, "active_allocated"):
                return [(frame["filename"], frame["name"]) for frame in block["frames"]]
    return []


def asks_for_it():
    return torch.rand(311, 411, device="cuda"), torch.ones(300, device="cuda") + 1


torch.cuda.memory._record_memory_history("state", stacks="python")
kept = asks_for_it()
for nbytes in (311 * 411 * 4, 300 * 4):
    frames = frames_of(nbytes)
    assert frames[0] == (__file__, "asks_for_it"), frames[0]
    assert not [name for name, _ in frames if "racegate/interpose/" in name], frames
