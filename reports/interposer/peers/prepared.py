"""A virtual device's process that has imported what a suite's tests import: `run.py` starts it.

As `python -m racegate.interpose.child`, whose arguments it takes; the imports take longer than most
of the tests, and a run is forked from here.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from unittest import mock

import torch

from racegate.interpose import child

MODULES = "RACEGATE_PEERS_MODULES"  # environment: names of what is imported
# They ask whether there is a GPU: of NVML, for a process that asked the runtime may not fork.
ASK_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def prepare() -> None:
    """Imports them. Exits if CUDA is set up behind that."""
    asks = mock.patch.object(torch.cuda, "_raw_device_count_nvml", lambda: 1)
    with asks, mock.patch.dict(os.environ, ASK_NVML):
        for name in os.environ.pop(MODULES).split():
            importlib.import_module(name)
    gc.freeze()  # or each run looks through all of it
    if torch.cuda.is_initialized():
        sys.exit("one of the modules has set up CUDA, which cannot be forked then")


if __name__ == "__main__":
    child.main(prepare)
