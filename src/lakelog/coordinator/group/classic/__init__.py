"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

`group` holds a group and its state diagram, `rebalance` the steps of a rebalance; `join` and
`member_requests` decide the requests.
"""
