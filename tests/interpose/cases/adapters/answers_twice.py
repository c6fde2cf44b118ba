# expect = "not modelled"
# says = ["the engine"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""Every run is answered twice."""

from toy.changed import serve

ANSWER = '        say("ran", to=ask["id"], **run(ask))'
serve(
    (
        ANSWER,
        "        told = run(ask)\n"
        + ANSWER.replace("run(ask)", "told")
        + "\n"
        + ANSWER.replace("run(ask)", "told"),
    )
)
