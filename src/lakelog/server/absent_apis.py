"""The APIs of Apache Kafka 4.4 that the broker does not serve, and why: see docs/api-support.md."""

from __future__ import annotations

from typing import NamedTuple


class AbsentApi(NamedTuple):
    """A row of the page."""

    key: int
    name: str
    reason: str


_SECURITY = "authentication and authorization are not supported"
_QUORUM = "the metadata log is embedded; there is no Raft quorum"
_SHARE = "share groups are not supported"
_STREAMS = "streams groups are not supported"
_QUOTAS = "quotas are not supported"
_TELEMETRY = "client telemetry is not supported"

ABSENT_APIS = (
    AbsentApi(29, "DescribeAcls", _SECURITY),
    AbsentApi(30, "CreateAcls", _SECURITY),
    AbsentApi(31, "DeleteAcls", _SECURITY),
    AbsentApi(34, "AlterReplicaLogDirs", "a broker has one data folder"),
    AbsentApi(38, "CreateDelegationToken", _SECURITY),
    AbsentApi(39, "RenewDelegationToken", _SECURITY),
    AbsentApi(40, "ExpireDelegationToken", _SECURITY),
    AbsentApi(41, "DescribeDelegationToken", _SECURITY),
    AbsentApi(48, "DescribeClientQuotas", _QUOTAS),
    AbsentApi(49, "AlterClientQuotas", _QUOTAS),
    AbsentApi(50, "DescribeUserScramCredentials", _SECURITY),
    AbsentApi(51, "AlterUserScramCredentials", _SECURITY),
    AbsentApi(52, "Vote", _QUORUM),
    AbsentApi(53, "BeginQuorumEpoch", _QUORUM),
    AbsentApi(54, "EndQuorumEpoch", _QUORUM),
    AbsentApi(55, "DescribeQuorum", _QUORUM),
    AbsentApi(58, "Envelope", _QUORUM),
    AbsentApi(59, "FetchSnapshot", _QUORUM),
    AbsentApi(70, "ControllerRegistration", _QUORUM),
    AbsentApi(71, "GetTelemetrySubscriptions", _TELEMETRY),
    AbsentApi(72, "PushTelemetry", _TELEMETRY),
    AbsentApi(73, "AssignReplicasToDirs", _QUORUM),
    AbsentApi(76, "ShareGroupHeartbeat", _SHARE),
    AbsentApi(77, "ShareGroupDescribe", _SHARE),
    AbsentApi(78, "ShareFetch", _SHARE),
    AbsentApi(79, "ShareAcknowledge", _SHARE),
    AbsentApi(80, "AddRaftVoter", _QUORUM),
    AbsentApi(81, "RemoveRaftVoter", _QUORUM),
    AbsentApi(82, "UpdateRaftVoter", _QUORUM),
    AbsentApi(83, "InitializeShareGroupState", _SHARE),
    AbsentApi(84, "ReadShareGroupState", _SHARE),
    AbsentApi(85, "WriteShareGroupState", _SHARE),
    AbsentApi(86, "DeleteShareGroupState", _SHARE),
    AbsentApi(87, "ReadShareGroupStateSummary", _SHARE),
    AbsentApi(88, "StreamsGroupHeartbeat", _STREAMS),
    AbsentApi(89, "StreamsGroupDescribe", _STREAMS),
    AbsentApi(90, "DescribeShareGroupOffsets", _SHARE),
    AbsentApi(91, "AlterShareGroupOffsets", _SHARE),
    AbsentApi(92, "DeleteShareGroupOffsets", _SHARE),
    AbsentApi(93, "StreamsGroupTopologyDescriptionUpdate", _STREAMS),
    AbsentApi(94, "UnregisterController", _QUORUM),
)
"""By key. These and the served ones are all keys except 4 to 7, which have no versions."""
