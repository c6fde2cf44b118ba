"""What is true of a step of vLLM's runner: from the scenario, and from what the scheduler chose.

Nothing here asks the engine what it did. The scheduler says which requests run, with how many
tokens and drafts, and in which blocks; the scripted model says the rest.
"""
