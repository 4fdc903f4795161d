"""The steps around an append: a walk over the records, a verification, an acknowledgement.

Start with `slow_batches`, which checks batches that take too long for one iteration of the loop.
The append itself is in `lakelog.replica.partition`, and its caller in `handlers.produce`.
"""
