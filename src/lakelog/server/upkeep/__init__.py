"""The work that a broker does without a request: flushes, retention, compaction, checks.

Start with `maintenance`, which runs the periodic work. The files are changed by `lakelog.storage`;
here is when that happens, in which thread or process, and what follows from a failure.
"""
