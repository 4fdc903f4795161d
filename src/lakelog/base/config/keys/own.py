"""The broker keys that Apache Kafka does not have; their names begin with `lakelog.`."""

from __future__ import annotations

from lakelog.base.config.key import ConfigKey, ConfigType, UpdateMode, at_least

OWN_KEYS = (
    ConfigKey(
        "lakelog.slow.request.ms",
        ConfigType.LONG,
        "1000",
        "A request that takes longer is logged, with who sent it; -1 logs none. Fetch, JoinGroup "
        "and SyncGroup are, unless they wait for what they were sent to wait for.",
        at_least(-1),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "lakelog.disk.reserve.bytes",
        ConfigType.LONG,
        "8388608",
        "Size of a file that is kept in the data folder. On a full disk its space is freed for a "
        "start, for the deletion of topics and records, for retention and for changes of "
        "configuration; records are rejected until it is allocated again. 0 keeps none.",
        at_least(0),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.producer.ids.max",
        ConfigType.INT,
        "100000",
        "Idempotent producers whose sequences are remembered, in all partitions together; beyond "
        "it those that have not written for longest are forgotten.",
        at_least(100),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.groups.max",
        ConfigType.INT,
        "10000",
        "Groups that there may be, with members or with offsets; beyond it new ones are refused.",
        at_least(1),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.group.subscriptions.max.bytes",
        ConfigType.INT,
        "16777216",
        "What the members of one group may say of themselves, all together: the topics they "
        "subscribe to and the metadata of their assignors. Beyond it whoever would add to that "
        "is refused.",
        at_least(1),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.coordinator.state.max.bytes",
        ConfigType.LONG,
        "268435456",
        "Memory, by estimate, of what clients make the broker remember: members of groups and "
        "their assignments, offsets, transactional ids with their partitions, fetch sessions. "
        "Beyond it nothing of that may grow. One group or transactional id may take an eighth.",
        at_least(1 << 20),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.transactional.ids.max",
        ConfigType.INT,
        "100000",
        "Transactional ids that are remembered; beyond it new ones are refused until some have "
        "expired (transactional.id.expiration.ms).",
        at_least(1),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.metrics.compat",
        ConfigType.BOOLEAN,
        "false",
        "Whether `/metrics` holds the metrics of kafka_exporter and kafka-lag-exporter too, by "
        "their names, for dashboards that know those.",
        None,
        UpdateMode.CLUSTER_WIDE,
    ),
)
