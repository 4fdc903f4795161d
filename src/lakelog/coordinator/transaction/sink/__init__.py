"""Sinks: transactional ids whose batches are the transactions of many children (ADR 8).

`requests` reads the requests, `sinks` decides them for one shard, by the plain functions of
`commit_sets`.
"""
