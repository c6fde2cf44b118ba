# expect = "silent"
# twin = ["no_cuda", "work_is_forked", "work_is_spawned", "work_is_executed", "libc_forks"]
# says_not = ["no pass"]
"""A program that does its work itself, and starts others that do none."""

import os
import subprocess
import sys

import torch

print(torch.ones(3, device="cuda").sum().item())
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
subprocess.run([sys.executable, "-c", "pass"], check=True)
