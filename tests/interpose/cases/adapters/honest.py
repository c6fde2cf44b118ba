# expect = "silent"
# says = ["PROVED"]
# command = ["adapter", "run", "{root}/docs/examples/toy.toml", "--", "{python}", "{script}"]
# twin = [
#     "benign_without_holds", "aborted_by_itself", "ends_too_early", "for_another_reason",
#     "negative_counter", "absurd_counter", "answers_twice", "dies_behind_its_answer",
#     "of_another_scenario", "refuses_most",
# ]
"""The adapter as the guide has it."""

from toy.changed import serve

serve()
