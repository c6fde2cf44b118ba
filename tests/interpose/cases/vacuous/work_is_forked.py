# expect = "inconclusive"
# says = ["the program gave the device no work", "processes forked by the program"]
"""All work is done by a forked child."""

import os

import torch

pid = os.fork()
if pid == 0:
    print(torch.ones(3, device="cuda").sum().item(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
