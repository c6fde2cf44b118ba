"""The command line: one module for each command, with its options, its progress and its exit code.

`start` comes first; `app` has the names and imports a command when it is called; `options` is what
the commands share, and imports nothing heavy. A new command is a module with a typer `app`, and a
line in `app`.
It knows all rooms, and does nothing that a room below could do.
"""
