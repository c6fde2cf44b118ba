# expect = "silent"
# twin = ["within", "later"]
# says = ["all calls were made"]
"""The kernel moves bytes of a page of which the device may be writing others."""

from shared.every_call import HALF, run

run(HALF)
