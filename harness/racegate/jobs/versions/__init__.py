"""The history of a target: the same scenarios, or one program, on version after version of a
package. What is kept of each version is a file of its own, so that a history that was ended goes
on, and one of more versions runs only what is new.

It knows how versions are found and set up and who judges them; not how a table is shown.
"""
