# expect = "silent"
# command = ["torch", "run", "--memory", "64M"]
# twin = ["is_too_large"]
# says = ["no conflict"]
# says_not = ["had no room"]
"""What the device holds is what is free less: an engine takes nine tenths of it, twice."""

import torch

MIB = 1 << 20

free, total = torch.cuda.mem_get_info()
assert total == torch.cuda.get_device_properties(0).total_memory == 64 * MIB
for _ in range(2):
    taken = torch.zeros(total * 9 // 10, dtype=torch.uint8, device="cuda")
    left = torch.cuda.mem_get_info()[0]
    assert free - left >= taken.nbytes
    del taken
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == free
