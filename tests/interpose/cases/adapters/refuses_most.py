# expect = "inconclusive"
# says = ["not run:"]
# command = [
#     "adapter", "gate", "--scenarios", "{root}/scenarios/controls", "--", "{python}", "{script}",
# ]
"""Of two scripts one is refused, and the gate is no pass."""

from toy.changed import serve

serve()
