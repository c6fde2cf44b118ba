# expect = "conflict"
# says = ["the wait at helper_wait.py:26 stands too late: move it before helper_wait.py:25"]
"""Every wait goes through a helper: its caller is what has to move."""

import torch


def wait(event):
    event.synchronize()


class Loader:
    def __init__(self):
        self.host = torch.zeros(64, pin_memory=True)
        self.value = torch.ones(64, device="cuda")

    def download(self):
        self.host.copy_(self.value, non_blocking=True)
        return torch.cuda.current_stream().record_event()

    def run(self):
        total = 0.0
        for _ in range(3):
            event = self.download()
            total += float(self.host.sum())
            wait(event)
        return total


print(Loader().run())
