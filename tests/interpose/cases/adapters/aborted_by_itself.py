# expect = "conflict"
# says = ["the engine aborted it, and the scenario does not"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""A request is aborted that nobody aborts."""

from toy.changed import serve

serve(
    (
        '"finished": {r["name"]: "max_tokens" for r in requests},',
        '"finished": {r["name"]: "abort" for r in requests},',
    )
)
