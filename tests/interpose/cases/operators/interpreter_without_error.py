# expect = "silent"
# says = ["no conflict", "200.0"]
# twin = ["interpreter_error_caught"]
"""As interpreter_error_caught, with what the interpreter can do, and all made on the device."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(values, size, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    read = tl.load(values + places, mask=places < size)
    read = 2 * read
    tl.store(values + places, read, mask=places < size)


torch.set_default_device("cuda")
values = torch.ones(100)
try:
    scale[(1,)](values, 100, BLOCK=128)
except Exception as error:  # noqa: BLE001
    print(f"another way: {error}")
print(float(values.sum()))
