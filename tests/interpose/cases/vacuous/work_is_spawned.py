# expect = "inconclusive"
# says = ["the program gave the device no work", "processes started by the program"]
"""All work is left to a process that multiprocessing spawns."""

import multiprocessing

import torch


def work() -> None:
    print(torch.cuda.is_available(), flush=True)


if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
