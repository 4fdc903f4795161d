"""The cluster's metadata on this broker: topics, and the logs on disk that they need.

Start with `log_manager`, which creates and deletes logs as the metadata image says. The image
itself is planned and stored in `lakelog.metadata`.
"""
