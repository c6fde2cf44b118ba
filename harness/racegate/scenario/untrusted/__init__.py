"""Untrusted input: files are read within bounds, and text is made fit to print.

`reading` opens files and decodes them: whatever is too large, too deep or no file is refused before
work is done. `text` makes any text fit to print, and `console` is what tables and lines go through:
nothing else writes what a file may have said. `files` writes a file whole or not at all. `near`
says what a wrong name was meant to be.
It imports no other room, and must not know what a file is about.
"""
