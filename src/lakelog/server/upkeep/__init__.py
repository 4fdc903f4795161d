"""The work that a broker does without a request: flushes, retention, compaction, checks.

Start with `maintenance`, which runs the periodic work. `lakelog.storage` changes the files; this
package decides when, in which thread or process, and how a failure is handled.
"""
