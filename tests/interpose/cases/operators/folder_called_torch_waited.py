# expect = "silent"
# says = ["no conflict"]
# twin = ["folder_called_torch"]
"""As folder_called_torch, behind a wait."""

import sys
from pathlib import Path

HELPER = """
import torch

def read(host, device):
    host.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    return float(host.sum())
"""
folder = Path("torch") / "lib" / "site-packages" / "numpy_helpers"
folder.mkdir(parents=True)
(folder / "helper.py").write_text(HELPER)
sys.path.insert(0, str(folder))

import helper  # noqa: E402
import torch  # noqa: E402

print(helper.read(torch.zeros(64, pin_memory=True), torch.ones(64, device="cuda")))
