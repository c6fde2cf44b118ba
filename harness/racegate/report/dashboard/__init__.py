"""What people and monitors are shown of campaigns while they run: read, never changed.

`view` is all that is known of a store, as one object; `page`, `metrics` and the object itself as
JSON say it, and `server` answers requests. `versions` is the table of a history, which is shown
when it is made. Knows stores, not how a campaign runs.
"""
