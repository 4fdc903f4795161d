"""Compaction: choice of the logs that are due, cleaning of segments, and the swap of their files.

`plan` decides on the loop, `clean` does the work over records in a helper process, `swap` puts the
result into the log on the loop again and completes interrupted swaps at a start.

Source: KIP-58, KIP-354, KIP-534; `LogCleaner`, `Cleaner` and `LogCleanerManager` of
`org.apache.kafka.storage.internals.log`.
"""
