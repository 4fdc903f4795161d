"""The broker keys that are lakelog's own, which begin with `lakelog.`, and keys of ZooKeeper.

Keys for a secured ZooKeeper ensemble have their names in Apache Kafka 3 (KIP-515). Kafka 4 has
removed them with ZooKeeper. Certificates and keys are files in PEM form (KIP-651).
"""

from __future__ import annotations

from lakelog.base.config.key import (
    ConfigType,
    Validator,
    at_least,
    dynamic_key,
    fixed_key,
    rejected_key,
)

OWN_KEYS = (
    dynamic_key(
        "lakelog.slow.request.ms",
        ConfigType.LONG,
        "1000",
        "Duration, in milliseconds, above which a request is logged with its client; -1 logs no "
        "request. The time that Fetch, JoinGroup and SyncGroup are meant to wait does not count.",
        at_least(-1),
    ),
    fixed_key(
        "lakelog.metadata.store",
        ConfigType.STRING,
        None,
        "The metadata store that several brokers share: sqlite:PATH or "
        "zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT, as in `lakelog serve --metadata`. Without a "
        "value, a file in the data folder, for this broker alone.",
    ),
    fixed_key(
        "lakelog.disk.reserve.bytes",
        ConfigType.LONG,
        "8388608",
        "Size, in bytes, of a file that reserves space in the data folder. On a full disk this "
        "space is freed for a start, for the deletion of topics and records, for retention and for "
        "changes of configuration; records are rejected until it is allocated again. 0 reserves "
        "nothing.",
        at_least(0),
    ),
    fixed_key(
        "lakelog.producer.ids.max",
        ConfigType.INT,
        "100000",
        "Maximum number of idempotent producers whose sequence numbers are kept, in all partitions "
        "together; beyond it, the producers that have been idle for longest are forgotten.",
        at_least(100),
    ),
    fixed_key(
        "lakelog.groups.max",
        ConfigType.INT,
        "10000",
        "Maximum number of groups with members or offsets; beyond it, new groups are rejected.",
        at_least(1),
    ),
    fixed_key(
        "lakelog.group.subscriptions.max.bytes",
        ConfigType.INT,
        "16777216",
        "Maximum size, in bytes, of the subscriptions of all members of one group: the topics they "
        "subscribe to and the metadata of their assignors. Beyond it, members that would add to "
        "this are rejected.",
        at_least(1),
    ),
    fixed_key(
        "lakelog.coordinator.state.max.bytes",
        ConfigType.LONG,
        "268435456",
        "Estimated memory, in bytes, for the state that clients make the broker keep: group "
        "members and their assignments, offsets, transactional ids with their partitions, fetch "
        "sessions. Beyond it, no state may grow. One group or transactional id may take an eighth.",
        at_least(1 << 20),
    ),
    fixed_key(
        "lakelog.transactional.ids.max",
        ConfigType.INT,
        "100000",
        "Maximum number of transactional ids; beyond it, new ones are rejected until some have "
        "expired (transactional.id.expiration.ms).",
        at_least(1),
    ),
    dynamic_key(
        "lakelog.metrics.compat",
        ConfigType.BOOLEAN,
        "false",
        "Whether `/metrics` also contains the metrics of kafka_exporter and kafka-lag-exporter "
        "under their own names, for existing dashboards.",
    ),
)


_ALGORITHM = Validator(lambda value: value in ("", "HTTPS", "https"), "HTTPS, or nothing")
_BOOLEAN, _STRING = ConfigType.BOOLEAN, ConfigType.STRING

ZOOKEEPER_KEYS = (
    fixed_key(
        "lakelog.zookeeper.digest.file",
        _STRING,
        None,
        "File with USER:PASSWORD, by which the broker authenticates to ZooKeeper (scheme digest). "
        "Other users of the host may not have access to it.",
    ),
    fixed_key(
        "zookeeper.set.acl",
        _BOOLEAN,
        "false",
        "Whether nodes that the broker creates in ZooKeeper are accessible only to brokers with "
        "the same digest or the same subject in their certificates.",
    ),
    fixed_key(
        "zookeeper.ssl.client.enable",
        _BOOLEAN,
        "false",
        "Whether connections to ZooKeeper use TLS; lakelog.metadata.store then names secure ports.",
    ),
    fixed_key(
        "zookeeper.ssl.truststore.location",
        _STRING,
        None,
        "File with the certificates of the authorities of ZooKeeper's certificates; without one, "
        "the authorities of the operating system.",
    ),
    fixed_key(
        "zookeeper.ssl.keystore.location",
        _STRING,
        None,
        "File with the broker's private key and certificates, for servers that require them.",
    ),
    fixed_key(
        "zookeeper.ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        "Password of the private key, if it is encrypted.",
    ),
    fixed_key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _STRING,
        "HTTPS",
        "HTTPS if ZooKeeper's certificates must have the names of the servers, else empty.",
        _ALGORITHM,
    ),
    rejected_key("zookeeper.ssl.keystore.type", _STRING, "PEM", "files are in PEM form"),
    rejected_key("zookeeper.ssl.truststore.type", _STRING, "PEM", "files are in PEM form"),
    rejected_key(
        "zookeeper.ssl.crl.enable", _BOOLEAN, "false", "revocation lists are not supported"
    ),
    rejected_key("zookeeper.ssl.ocsp.enable", _BOOLEAN, "false", "OCSP is not supported"),
)
