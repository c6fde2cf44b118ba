"""Unmodified vLLM releases on the virtual device, judged by search.

`environment` installs a release beside racegate, `client` starts it there, `search` tries landings,
`judge` says what all of it means. `inside/` is the part that runs in vLLM's environment; nothing
else imports it, and nothing here imports torch or vLLM.
"""
