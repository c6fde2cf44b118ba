"""Unmodified vLLM releases on the virtual device, judged by search.

`environment` installs a release beside racegate, `engine` starts it there, `cell` says which one is
meant; search, verdicts and their text are those of `racegate.targets.common`. `inside/` is the part
that runs in vLLM's environment; nothing else imports it, and nothing here imports torch or vLLM.
"""
