"""What the broker tells about itself: metrics, health, slow requests, requests as they come.

Everything is read from the parts that own it when somebody asks. The exceptions are here: durations
and errors of requests (`requests`), and delays of the loop (`loop_watch`).
"""
