"""Counters and histograms that are cheap enough for the path of every request.

They are plain numbers and lists, which are labelled, summed and formatted only when `/metrics` is
requested. `lakelog.server.monitoring` has the names of the metrics.
"""
