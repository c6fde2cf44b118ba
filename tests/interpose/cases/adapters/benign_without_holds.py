# expect = "conflict"
# says = ["CONFLICT: 9 steps"]
# command = [
#     "adapter", "run", "{root}/docs/examples/toy.toml", "--plant", "drop_edge:count-landed",
#     "--", "{python}", "{script}",
# ]
"""A race that no landing was tried of is no benign one, though runs could be compared."""

from toy.changed import serve

serve(offers="plain observations")
