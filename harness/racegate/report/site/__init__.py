"""All reports as one static site: pages that need nothing but their folder.

`reports` reads the folder and says of each file of figures which command and commit it is of;
`shapes` what of those files is shown, `figures` and `charts` how; `markdown` turns the written
pages into HTML; `pages` puts it all together. Reads, never runs.
"""
