"""Groups of the consumer protocol (KIP-848).

`group` and `member` are built from records alone; a draft is a group with a decision's records
applied. `heartbeat` decides the protocol's only request, `rebalance` contains the steps that it
takes, and keeps two members from owning one partition. `classic_members`
serves members that still use the classic protocol, `migration` converts a group of one protocol
into a group of the other.
"""
