# expect = "silent"
# command = ["torch", "run", "--gpu", "l4-24g"]
# twin = ["is_no_known_gpu"]
# says = ["no conflict", "NVIDIA L4, 24 GiB, compute capability 8.9"]
"""What a program asks of its device is what was named, and all that it can ask agrees."""

import torch

facts = torch.cuda.get_device_properties(0)
assert torch.cuda.get_device_name() == facts.name == "NVIDIA L4"
assert torch.cuda.get_device_capability() == (facts.major, facts.minor) == (8, 9)
assert facts.multi_processor_count == 58
assert facts.total_memory == torch.cuda.mem_get_info()[1] == 24 << 30
assert (facts.L2_cache_size, facts.max_threads_per_multi_processor) == (48 << 20, 1536)
assert (facts.shared_memory_per_block_optin, facts.shared_memory_per_block) == (99 << 10, 48 << 10)
torch.ones(3, device="cuda").sum().item()
