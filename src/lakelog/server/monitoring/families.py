"""Every metric by name; docs/monitoring.md has the same list."""

from __future__ import annotations

import re

from lakelog.metrics import Family, Kind

_ROW = re.compile(r"(\w+) (\w+)(?:\((.+?)\))?: (.+)")
"""A metric in the tables below: its kind, its name, its labels, and its help."""


def _families(table: str, prefix: str = "") -> dict[str, Family]:
    """Return the metrics of a table by their names without the prefix; long rows go on indented."""
    families = {}
    for row in re.sub(r"\n +", " ", table.strip()).split("\n"):
        match = _ROW.fullmatch(row)
        assert match is not None, row
        kind, name, labels, text = match.groups()
        names = tuple(labels.split(", ")) if labels else ()
        families[name] = Family(prefix + name, Kind(kind), text, names)
    return families


_OVERVIEW = """
gauge build_info(version, python, cluster_id): Always 1; the labels identify the broker.
gauge ready: 1 if /readyz reports that the broker is ready, else 0.
histogram request_duration_seconds(api): Time from the start of a request's handling to its complete
    response, including waits for records, members or the log.
counter request_errors_total(api, code): Error codes in responses.
counter produce_bytes_total(topic): Bytes of record batches appended, as stored.
counter fetch_bytes_total(topic): Bytes of record batches in Fetch responses.
counter records_total(topic, op): Records appended; `op` is always `produce`.
gauge connections(client_software): Open connections, by the clients' software name.
gauge peers(state): Other brokers in the metadata, by the result of the last call: connected,
    unreachable, or refused (another process has the address).
counter connections_refused_total: Connections beyond a limit, closed at once.
counter connections_closed_total: Connections closed because the client violated the protocol or a
    limit.
counter connections_expired_total: Connections closed because they were idle.
gauge request_memory_bytes: Memory of receive buffers and of batches being verified.
gauge request_memory_limit_bytes: Limit of lakelog_request_memory_bytes: queued.max.request.bytes.
gauge request_memory_waiting: Connections that wait for request memory.
gauge waiting_requests_bytes: Upper bound of the memory of requests that wait for a response.
gauge unread_responses_bytes: Memory of responses that clients have not read.
gauge parked_requests: Fetches that wait for records.
gauge fetch_sessions: Incremental fetch sessions.
gauge fetch_session_memory_bytes: Memory of all incremental fetch sessions.
counter fetch_session_evictions_total: Unused fetch sessions evicted for new ones.
gauge topics: Topics.
gauge log_size_bytes(topic): Size of the segment files of a topic's partitions on this broker.
gauge retention_held_bytes(topic): Expired segments that retention keeps because the topic's table
    lacks their records.
gauge partitions: Partitions on this broker.
gauge led_partitions: Partitions led by this broker, whose logs can be used.
gauge offline_partitions: Partitions of this broker whose log cannot be used.
gauge under_replicated_partitions: Partitions led by this broker with a replica that is not in sync.
gauge under_min_isr_partitions: Partitions led by this broker with fewer in-sync replicas than
    min.insync.replicas: acks=all fails.
gauge leaderless_partitions: Partitions of the cluster without a leader, in the metadata of this
    broker, or with this broker as the leader and an offline log.
gauge offline_replicas: Replicas of the cluster whose log their broker cannot use, in the metadata
    of this broker: they lead nothing before that broker starts again.
gauge replica_lag_records_max: Most records that a follower lacks of a partition led by this broker.
counter isr_shrinks_total: Times that replicas left an ISR led by this broker.
counter isr_expansions_total: Times that replicas joined an ISR led by this broker.
counter leader_elections_total: Times that this broker became the leader of a replicated partition.
histogram election_duration_seconds: Time from the report of a dead broker to the commit of its
    successors, on the controller.
gauge active_controller: 1 if this broker is the controller, else 0.
gauge registered_brokers: Brokers in the metadata.
gauge fenced_brokers: Brokers in the metadata that are fenced: they lead no partition.
gauge shortage(resource): 1 while the broker lacks the resource: `disk` (space) or `descriptors`.
gauge disk_size_bytes: Size of the file system that holds the data folder.
gauge disk_free_bytes: Space of that file system that the broker may still use.
histogram fsync_duration_seconds: Time of each fsync of a file or a folder.
gauge groups: Groups with members, and groups whose state is kept after their last member left.
counter groups_evicted_total: Groups without members evicted for new groups.
gauge state_memory_bytes: Estimated memory of groups, transactional ids and fetch sessions.
gauge state_memory_limit_bytes: Limit of lakelog_state_memory_bytes:
    lakelog.coordinator.state.max.bytes.
gauge transactional_ids: Known transactional ids.
counter hanging_transactions_total: Transactions unknown to any coordinator that the broker ended.
gauge group_members(group): Members of a group.
counter group_members_expired_total: Members removed after a session or rebalance timeout.
gauge group_lag_records(group, topic): Records after the committed offsets, summed over all
    partitions.
gauge group_lag_seconds(group, topic): Age of the group's position: time since the log ended there,
    for the partition with the largest lag; interpolated between scrapes.
histogram event_loop_lag_seconds: Delay of a timer that fires four times a second.
gauge event_loop_longest_callback_seconds: The longest time that one callback held the event loop,
    in the last one to two minutes.
counter cleaner_rounds_total: Compactions of a log.
counter cleaner_read_bytes_total: Bytes of segments read for compaction.
counter cleaner_written_bytes_total: Bytes of compacted segments written.
counter cleaner_helper_deaths_total: Compaction helper processes that died.
gauge cleaner_dirtiest_ratio: The largest uncompacted share of a log at the last check, 0 to 1.
gauge cleaner_uncleanable_partitions: Logs excluded from compaction after a permanent failure.
"""

# The names that Prometheus' client libraries use.
_PROCESS = """
counter process_cpu_seconds_total: Processor time of the broker, user and system.
gauge process_resident_memory_bytes: Resident memory of the broker.
gauge process_virtual_memory_bytes: Virtual memory of the broker.
gauge process_open_fds: Open file descriptors.
gauge process_max_fds: Largest number of open file descriptors.
gauge process_start_time_seconds: Start time of the broker, in seconds since the Unix epoch.
"""

_DETAIL = """
gauge partition_log_start_offset(topic, partition): The first offset.
gauge partition_log_end_offset(topic, partition): The offset of the next record.
gauge partition_high_watermark(topic, partition): Where committed records end.
gauge partition_last_stable_offset(topic, partition): End of the decided transactions.
gauge partition_leader_epoch(topic, partition): It rises at each start of the leader.
gauge partition_log_size_bytes(topic, partition): Its segment files.
gauge partition_segments(topic, partition): Number of its segments.
gauge partition_producers(topic, partition): Producers whose sequences are remembered.
counter partition_produce_bytes_total(topic, partition): As lakelog_produce_bytes_total.
counter partition_fetch_bytes_total(topic, partition): As lakelog_fetch_bytes_total.
counter partition_records_total(topic, partition): Records appended.
gauge group_committed_offset(group, topic, partition): The offset that the group reads next.
gauge group_partition_lag_records(group, topic, partition): Records not committed yet.
gauge group_partition_lag_seconds(group, topic, partition): As lakelog_group_lag_seconds.
"""

# Names, labels and meanings of kafka_exporter 1.9 and of kafka-lag-exporter 0.8.
_COMPAT = """
gauge kafka_brokers: Brokers of the cluster that are not fenced.
gauge kafka_topic_partitions(topic): Partitions of a topic.
gauge kafka_topic_partition_current_offset(topic, partition): The offset of the next record.
gauge kafka_topic_partition_oldest_offset(topic, partition): The first offset.
gauge kafka_topic_partition_in_sync_replica(topic, partition): Replicas in sync.
gauge kafka_topic_partition_under_replicated_partition(topic, partition): 1 if a replica is not in
    sync.
gauge kafka_consumergroup_members(consumergroup): Members of a group.
gauge kafka_consumergroup_current_offset(consumergroup, topic, partition): The committed offset.
gauge kafka_consumergroup_lag(consumergroup, topic, partition): Records not committed yet.
gauge kafka_consumergroup_group_lag_seconds(cluster_name, group, topic, partition): As
    lakelog_group_lag_seconds.
"""

CLUSTER_ALIASES = {
    "kafka_server_replicamanager_partitioncount": "partitions",
    "kafka_server_replicamanager_leadercount": "led_partitions",
    "kafka_server_replicamanager_offlinereplicacount": "offline_partitions",
    "kafka_server_replicamanager_underreplicatedpartitions": "under_replicated_partitions",
    "kafka_server_replicamanager_underminisrpartitioncount": "under_min_isr_partitions",
    "kafka_server_replicamanager_isrshrinks_total": "isr_shrinks_total",
    "kafka_server_replicamanager_isrexpands_total": "isr_expansions_total",
    "kafka_server_replicafetchermanager_maxlag": "replica_lag_records_max",
    "kafka_controller_kafkacontroller_activecontrollercount": "active_controller",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "leaderless_partitions",
    "kafka_controller_kafkacontroller_fencedbrokercount": "fenced_brokers",
}
"""Kafka's MBeans, as Prometheus' JMX exporter names them, and the equal metrics of `OVERVIEW`."""

ELECTION_COUNT = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"

OVERVIEW = _families(_OVERVIEW, "lakelog_") | _families(_PROCESS)
DETAIL = _families(_DETAIL, "lakelog_")
COMPAT = _families(_COMPAT) | {
    alias: Family(alias, OVERVIEW[name].kind, f"As lakelog_{name}.", ())
    for alias, name in CLUSTER_ALIASES.items()
}
COMPAT[ELECTION_COUNT] = Family(
    ELECTION_COUNT, Kind.COUNTER, "As lakelog_election_duration_seconds_count.", ()
)
