"""Compaction: choice of the logs that are due, cleaning of segments, and the swap of their files.

`plan` decides on the loop, `clean` does the work over records in a helper process, `swap` puts the
result into the log on the loop again and finishes at a start what a crash interrupted.

Source: KIP-58, KIP-354, KIP-534; `LogCleaner`, `Cleaner` and `LogCleanerManager` of
`org.apache.kafka.storage.internals.log`.
"""
