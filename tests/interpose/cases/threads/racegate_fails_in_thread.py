# expect = "not modelled"
# says = ["RuntimeError in thread loader (racegate itself failed): racegate: no memory"]
"""A thread dies of an error that is racegate's."""

import threading

import torch

from racegate.interpose.kernels import aliases


def fail(*arguments: object) -> None:
    raise RuntimeError("racegate: no memory")


def load() -> None:
    aliases._make = fail
    torch.ones(3, device="cuda").add_(1.0)


worker = threading.Thread(target=load, name="loader")
worker.start()
worker.join()
