# expect = "not modelled"
# says = ["adapter does not conform: tells another history of another scenario"]
# command = ["adapter", "gate", "--scenarios", "{root}/docs/examples", "--", "{python}", "{script}"]
"""What is told of every run is the history of one that was recorded."""

from toy.changed import serve

RUN = '    requests = ask["scenario"]["requests"]\n    device = '
serve(
    (RUN, RUN.replace('ask["scenario"]', 'RECORDED.setdefault(0, ask["scenario"])')),
    ("OFFERS = sys", "RECORDED = {}\nOFFERS = sys"),
)
