"""Unmodified SGLang releases on the virtual device: the overlap scheduler, judged by search.

`environment` installs a release, `engine` starts it there and asks it for runs, `cell` says which
engine is meant. Search, verdicts and their text are those of `racegate.targets.common`. `inside/`
is the part that runs in SGLang's environment; nothing else imports it, and nothing here imports
torch or SGLang.
"""
