"""Upkeep of archived tables: proof, compaction, expiry, orphans.

`audit.py` compares a table with its progress and its log. `compaction.py` replaces small files by
large ones. `cleanup.py` expires snapshots by the table's own policy and removes files that no
snapshot references any more. Nothing here archives records, and no step changes the progress.
"""
