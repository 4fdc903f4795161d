"""The supported and the missing parts of each API: the texts of docs/api-support.md.

Every API key of Apache Kafka 4.4 has a row, also the unsupported ones, which have a reason.
"""

from __future__ import annotations

from typing import NamedTuple


class ApiNote(NamedTuple):
    """One API; `missing` is empty if it is supported completely."""

    key: int
    name: str
    done: str
    missing: str = ""


_SECURITY = "authentication and authorization are not supported"
_REPLICATION = "a cluster has one broker, which holds every replica"
_QUORUM = "the metadata log is embedded; there is no Raft quorum"
_SHARE = "share groups are not supported"
_STREAMS = "streams groups are not supported"
_QUOTAS = "quotas are not supported"
_TELEMETRY = "client telemetry is not supported"

API_NOTES = (
    ApiNote(
        0,
        "Produce",
        "acks 0, 1 and all; idempotent and transactional producers; errors per record.",
        "Versions 0 to 2 are advertised for old librdkafka but close the connection.",
    ),
    ApiNote(
        1,
        "Fetch",
        "Sessions, long poll, topic ids, read_committed, diverging epochs.",
        "Followers: no preferred replica.",
    ),
    ApiNote(
        2,
        "ListOffsets",
        "By timestamp and special position, both isolation levels.",
        "Tiered storage: timestamps -5 and -6 return no offset.",
    ),
    ApiNote(3, "Metadata", "By name and by id, with creation of topics."),
    ApiNote(8, "OffsetCommit", "Both group protocols, clients outside a group, by topic id."),
    ApiNote(9, "OffsetFetch", "One group or many, require_stable, by topic id."),
    ApiNote(10, "FindCoordinator", "Groups and transactional ids.", "Share groups."),
    ApiNote(11, "JoinGroup", "Dynamic and static members."),
    ApiNote(12, "Heartbeat", "All."),
    ApiNote(13, "LeaveGroup", "One member or many, static members by instance id."),
    ApiNote(14, "SyncGroup", "All."),
    ApiNote(15, "DescribeGroups", "Groups of the classic protocol."),
    ApiNote(16, "ListGroups", "Filters of states and types."),
    ApiNote(17, "SaslHandshake", "", _SECURITY),
    ApiNote(18, "ApiVersions", "Features; version 5 checks cluster and node."),
    ApiNote(
        19,
        "CreateTopics",
        "Counts, assignments, configurations, validation only.",
        f"At most 10,000 partitions in one request; {_REPLICATION}.",
    ),
    ApiNote(20, "DeleteTopics", "By name and by id."),
    ApiNote(21, "DeleteRecords", "All; the response is sent when the change is durable."),
    ApiNote(
        22,
        "InitProducerId",
        "Idempotent and transactional producers.",
        "Two-phase commit (version 6 is not stable in Kafka either).",
    ),
    ApiNote(23, "OffsetForLeaderEpoch", "All."),
    ApiNote(24, "AddPartitionsToTxn", "Requests of clients and of other brokers."),
    ApiNote(25, "AddOffsetsToTxn", "All."),
    ApiNote(26, "EndTxn", "Both flows; version 5 raises the epoch."),
    ApiNote(27, "WriteTxnMarkers", "Requests of administrators."),
    ApiNote(28, "TxnOffsetCommit", "With the fencing of groups (KIP-447)."),
    ApiNote(29, "DescribeAcls", "", _SECURITY),
    ApiNote(30, "CreateAcls", "", _SECURITY),
    ApiNote(31, "DeleteAcls", "", _SECURITY),
    ApiNote(
        32,
        "DescribeConfigs",
        "Topics, brokers and groups, with sources, synonyms, types and documentation.",
        "Broker loggers; client metrics.",
    ),
    ApiNote(
        33,
        "AlterConfigs",
        "Topics, brokers and groups; replaces all settings of a resource.",
        "Broker loggers; client metrics.",
    ),
    ApiNote(34, "AlterReplicaLogDirs", "", "a broker has one data folder"),
    ApiNote(35, "DescribeLogDirs", "Sizes of partitions, and the space of the data folder."),
    ApiNote(36, "SaslAuthenticate", "", _SECURITY),
    ApiNote(
        37,
        "CreatePartitions",
        "With and without assignments.",
        "Internal topics, whose number of partitions is fixed.",
    ),
    ApiNote(38, "CreateDelegationToken", "", _SECURITY),
    ApiNote(39, "RenewDelegationToken", "", _SECURITY),
    ApiNote(40, "ExpireDelegationToken", "", _SECURITY),
    ApiNote(41, "DescribeDelegationToken", "", _SECURITY),
    ApiNote(42, "DeleteGroups", "All."),
    ApiNote(
        43,
        "ElectLeaders",
        "Preferred and unclean.",
        f"{_REPLICATION[0].upper()}{_REPLICATION[1:]}, so that elections are rarely needed.",
    ),
    ApiNote(
        44,
        "IncrementalAlterConfigs",
        "Topics, brokers and groups: set, delete, append, subtract, validation only.",
        "Broker loggers; client metrics.",
    ),
    ApiNote(
        45,
        "AlterPartitionReassignments",
        "Changes of the order of replicas, completed at once.",
        f"Other brokers: {_REPLICATION}.",
    ),
    ApiNote(46, "ListPartitionReassignments", "Always empty, because no reassignment takes time."),
    ApiNote(47, "OffsetDelete", "All."),
    ApiNote(48, "DescribeClientQuotas", "", _QUOTAS),
    ApiNote(49, "AlterClientQuotas", "", _QUOTAS),
    ApiNote(50, "DescribeUserScramCredentials", "", _SECURITY),
    ApiNote(51, "AlterUserScramCredentials", "", _SECURITY),
    ApiNote(52, "Vote", "", _QUORUM),
    ApiNote(53, "BeginQuorumEpoch", "", _QUORUM),
    ApiNote(54, "EndQuorumEpoch", "", _QUORUM),
    ApiNote(55, "DescribeQuorum", "", _QUORUM),
    ApiNote(56, "AlterPartition", "", _REPLICATION),
    ApiNote(57, "UpdateFeatures", "", "feature levels are fixed"),
    ApiNote(58, "Envelope", "", _QUORUM),
    ApiNote(59, "FetchSnapshot", "", _QUORUM),
    ApiNote(60, "DescribeCluster", "Brokers.", "Controllers: the broker itself is the controller."),
    ApiNote(61, "DescribeProducers", "All."),
    ApiNote(62, "BrokerRegistration", "", _QUORUM),
    ApiNote(63, "BrokerHeartbeat", "", _QUORUM),
    ApiNote(64, "UnregisterBroker", "", _QUORUM),
    ApiNote(65, "DescribeTransactions", "All."),
    ApiNote(66, "ListTransactions", "Filters of states, producer ids, duration and pattern."),
    ApiNote(67, "AllocateProducerIds", "", _QUORUM),
    ApiNote(68, "ConsumerGroupHeartbeat", "Uniform and range assignors, regular expressions."),
    ApiNote(69, "ConsumerGroupDescribe", "All."),
    ApiNote(70, "ControllerRegistration", "", _QUORUM),
    ApiNote(71, "GetTelemetrySubscriptions", "", _TELEMETRY),
    ApiNote(72, "PushTelemetry", "", _TELEMETRY),
    ApiNote(73, "AssignReplicasToDirs", "", _QUORUM),
    ApiNote(74, "ListConfigResources", "Topics, brokers and groups.", "Client metrics."),
    ApiNote(
        75,
        "DescribeTopicPartitions",
        "Pages with cursors and limits.",
        "Eligible leader replicas, whose lists are empty.",
    ),
    ApiNote(76, "ShareGroupHeartbeat", "", _SHARE),
    ApiNote(77, "ShareGroupDescribe", "", _SHARE),
    ApiNote(78, "ShareFetch", "", _SHARE),
    ApiNote(79, "ShareAcknowledge", "", _SHARE),
    ApiNote(80, "AddRaftVoter", "", _QUORUM),
    ApiNote(81, "RemoveRaftVoter", "", _QUORUM),
    ApiNote(82, "UpdateRaftVoter", "", _QUORUM),
    ApiNote(83, "InitializeShareGroupState", "", _SHARE),
    ApiNote(84, "ReadShareGroupState", "", _SHARE),
    ApiNote(85, "WriteShareGroupState", "", _SHARE),
    ApiNote(86, "DeleteShareGroupState", "", _SHARE),
    ApiNote(87, "ReadShareGroupStateSummary", "", _SHARE),
    ApiNote(88, "StreamsGroupHeartbeat", "", _STREAMS),
    ApiNote(89, "StreamsGroupDescribe", "", _STREAMS),
    ApiNote(90, "DescribeShareGroupOffsets", "", _SHARE),
    ApiNote(91, "AlterShareGroupOffsets", "", _SHARE),
    ApiNote(92, "DeleteShareGroupOffsets", "", _SHARE),
    ApiNote(93, "StreamsGroupTopologyDescriptionUpdate", "", _STREAMS),
    ApiNote(94, "UnregisterController", "", _QUORUM),
)
