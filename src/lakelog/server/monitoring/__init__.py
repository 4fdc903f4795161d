"""Metrics, health, and a view of current requests, over HTTP.

Start with `endpoint`. Values are read from the parts that own them when a page is requested; only
delays of the loop are measured here (`loop_watch`). Requests count themselves (`requests.metrics`).
"""
