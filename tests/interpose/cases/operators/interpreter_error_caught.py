# expect = "not modelled"
# says = ["the Triton kernel scale"]
"""A program that catches what Triton's interpreter cannot do has not been judged."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(values, size, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    read = tl.load(values + places, mask=places < size)
    read = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [read], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(values + places, read, mask=places < size)


values = torch.ones(100, device="cuda")
try:
    scale[(1,)](values, 100, BLOCK=128)
except Exception as error:  # noqa: BLE001
    print(f"another way: {error}")
print(float(values.sum()))
