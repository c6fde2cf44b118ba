# expect = "conflict"
# says = ["was killed by SIGKILL"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
"""The engine is killed behind its answer."""

from toy.changed import serve

ANSWER = '        say("ran", to=ask["id"], **run(ask))'
serve((ANSWER, f"{ANSWER}\n        os.kill(os.getpid(), 9)"))
