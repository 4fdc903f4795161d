"""Opening a log at a start, and repairing its end after an unclean stop.

Read `loader` first; `segments` scans one segment and cuts off an invalid tail. Which logs are
opened is decided in `folder.directory`.
"""
