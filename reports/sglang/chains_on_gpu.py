"""Compares the plain forms of kernels that build and verify a chain of drafts with SGLang's own.

    python reports/sglang/chains_on_gpu.py SGLANG/kernels/jit/include/sgl_kernel/speculative

SGLANG is the folder of the installed package; its `eagle.cuh` is compiled. It needs a GPU, nvcc
and ninja. Exit code 1 if anything that either of them writes is not the same, bit for bit.
"""

from __future__ import annotations

import sys
from itertools import starmap
from random import Random
from typing import Any

import torch
from torch.utils.cpp_extension import load_inline

from racegate.targets.sglang.inside.chains import build_chain, verify_chain

CASES = 300
WIDTH = 4  # a sampled token and three drafts
SOURCE = """
#include <torch/extension.h>
#include "eagle.cuh"
using T = torch::Tensor;
namespace tree = sglang::speculative;
static int64_t *big(T t) { return t.data_ptr<int64_t>(); }
static int32_t *small(T t) { return t.data_ptr<int32_t>(); }
void build(T parents, T chosen, T lengths, T mask, T positions, T place, T following, T sibling,
           int64_t topk, int64_t depth, int64_t width, int64_t mode) {
    tree::build_tree_efficient<<<place.size(0), width>>>(
        big(parents), big(chosen), big(lengths), (bool *)mask.data_ptr(), big(positions),
        big(place), big(following), big(sibling), topk, depth, width, mode);
}
void verify(T predicts, T accepted, T counts, T drafts, T place, T following, T sibling, T said) {
    tree::VerifyTreeGreedy<int32_t, int64_t><<<place.size(0), 1>>>(
        small(predicts), small(accepted), small(counts), big(drafts), big(place), big(following),
        big(sibling), big(said), place.size(0), accepted.size(1), place.size(1));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("build", &build); m.def("verify", &verify); }
"""


def main() -> None:
    """Random lengths, drafts and answers, with both kinds of masks."""
    compiled: Any = load_inline(
        "chains", cpp_sources="", cuda_sources=SOURCE, extra_include_paths=[sys.argv[1]]
    )
    random = Random(0)
    torch.set_default_device("cuda")
    forms = ((compiled.build, compiled.verify), (build_chain, verify_chain))
    different = 0
    for case in range(CASES):
        lengths = [random.randint(1, 9) for _ in range(random.randint(1, 4))]
        drafts, said = (
            torch.tensor([random.choices((0, 1), k=WIDTH) for _ in lengths]) for _ in range(2)
        )
        first, second = (made(form, lengths, drafts, said, case % 2) for form in forms)
        torch.cuda.synchronize()
        different += not all(starmap(torch.equal, zip(first, second, strict=True)))
    print(f"{different} of {CASES} differ on {torch.cuda.get_device_name()}")
    sys.exit(bool(different))


def made(
    form: tuple[Any, Any], lengths: list[int], drafts: Any, said: Any, mask_mode: int
) -> list[Any]:
    """All that is written: the mask, positions, links, tokens, accepted places and counts."""
    (build, verify), requests = form, len(lengths)
    mask = torch.ones(sum((length + WIDTH) * WIDTH for length in lengths) + 7, dtype=torch.bool)
    positions = torch.zeros(requests * WIDTH, dtype=torch.int64)
    place, following, sibling = torch.full((3, requests, WIDTH), -1)
    tree = (torch.tensor([[-1, 0, 1]] * requests), torch.tensor([[0, 1, 2]] * requests))
    links = (place, following, sibling)
    build(*tree, torch.tensor(lengths), mask, positions, *links, 1, WIDTH - 1, WIDTH, mask_mode)
    predicts = torch.zeros(requests * WIDTH, dtype=torch.int32)
    accepted = torch.full((requests, WIDTH), -1, dtype=torch.int32)
    counts = torch.zeros(requests, dtype=torch.int32)
    verify(predicts, accepted, counts, drafts, *links, said)
    return [mask, positions, *links, predicts, accepted, counts]


if __name__ == "__main__":
    main()
