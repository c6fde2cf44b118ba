# expect = "silent"
# twin = ["helper_wait"]
"""The caller of the helper has moved, as advised."""

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
            wait(event)
            total += float(self.host.sum())
        return total


print(Loader().run())
