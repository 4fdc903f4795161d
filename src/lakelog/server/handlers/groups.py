"""The group APIs: OffsetCommit (8), OffsetFetch (9), JoinGroup (11), Heartbeat (12),
LeaveGroup (13), SyncGroup (14), DescribeGroups (15) and ListGroups (16).

All they decide is decided in the coordinator; a request waits there as data until it is answered.
"""

from __future__ import annotations

from typing import Any

from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context
