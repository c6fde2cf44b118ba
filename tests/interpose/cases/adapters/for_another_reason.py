# expect = "conflict"
# says = ["finished by stop, which the scenario does not let it"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""A request is said to have stopped, and has no stop token."""

from toy.changed import serve

serve(
    (
        '"finished": {r["name"]: "max_tokens" for r in requests},',
        '"finished": {r["name"]: "stop" for r in requests},',
    )
)
