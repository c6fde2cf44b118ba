# expect = "not modelled"
# says = ["the counter 'condense_moves' is -1"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""A counter is below zero."""

from toy.changed import serve

serve(('"counters": {"condense_moves": device.moves},', '"counters": {"condense_moves": -1},'))
