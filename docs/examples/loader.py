"""A loader with one staging buffer, which is written while the last copy may still read it."""

import torch

import racegate


def main():
    staging = torch.empty(4, pin_memory=True)
    stream = torch.cuda.Stream()
    batches = []
    for number in range(3):
        staging.fill_(float(number))
        with torch.cuda.stream(stream):
            batches.append(staging.to("cuda", non_blocking=True))
    stream.synchronize()
    racegate.observe("batches", torch.stack(batches))


main()
