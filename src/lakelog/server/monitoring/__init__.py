"""Metrics, health, and a view of current requests, over HTTP.

Start with `endpoint`. Values are read from the parts that own them when a page is requested; only
delays of the loop and the lag of groups are measured here (`sources`). Requests count themselves
(`requests.metrics`).
"""
