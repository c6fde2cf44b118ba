# expect = "not modelled"
# says = ["the counter 'condense_moves' is 1000000000000"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""A counter counts what cannot have happened."""

from toy.changed import serve

serve(('"counters": {"condense_moves": device.moves},', '"counters": {"condense_moves": 10**12},'))
