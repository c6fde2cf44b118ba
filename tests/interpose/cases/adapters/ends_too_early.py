# expect = "conflict"
# says = ["DIVERGENT"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""A token of every request is missing, in the run and in plain decoding."""

from toy.changed import serve

serve(
    ('"delivered": runner.tokens,', '"delivered": {n: t[:-1] for n, t in runner.tokens.items()},'),
    offers="owners",
)
