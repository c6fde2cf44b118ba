# expect = "conflict"
# command = ["torch", "run", "--explore"]
# says = ["host threads of the program run in one order only"]
# says_not = ["BENIGN"]
"""Holds change nothing here, but the threads were seen in one order only: that is no proof."""

import threading
import time

import torch

from racegate.interpose import observe

host = torch.ones(64, pin_memory=True)
there = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
threading.Thread(target=lambda: host.fill_(1.0)).start()
time.sleep(0.3)
there.copy_(host, non_blocking=True)
observe("there", there)
