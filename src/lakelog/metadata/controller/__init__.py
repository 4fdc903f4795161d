"""Decisions of the controller, which turn requests into records: pure functions of the image.

Read `topics.py` first. Each `plan_...` function returns a `Plan`: the records to write, and the
result for the caller once they are committed. Nothing here writes; `metadata/log.py` does.
"""
