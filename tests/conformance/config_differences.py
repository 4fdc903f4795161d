"""Where our tables of configuration keys differ from Apache Kafka 4.3.1's, with the reasons."""

from __future__ import annotations

from lakelog.base.config.keys.own import ZOOKEEPER_KEYS
from lakelog.base.config.keys.topics import TABLE_KEYS

OLDER = {key.name for key in ZOOKEEPER_KEYS}
"""Keys of Apache Kafka 3 for a secured ensemble, which Kafka 4 has removed with ZooKeeper."""

NEWER = {
    "topic": {
        "durability",  # this project's own
        "records.verify",
        "errors.deadletterqueue.group.enable",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        *(key.name for key in TABLE_KEYS),
    },
    "broker": {
        "log.durability",
        "log.records.verify",
        "max.decompressed.message.bytes",
        "super.users",
    },
}
"""Keys of Kafka 4.4, and a key of its authorizer."""

ONE_NODE = "one node is a whole cluster"
NO_JAVA = "a Java class that does not run here"
LOOPBACK = "nothing beyond loopback, and no TLS or SASL"
DEFAULTS = {
    "broker.session.timeout.ms": "a broker has no pauses of a garbage collector (ADR 14)",
    "group.consumer.max.size": "the memory of groups is bounded",
    "group.max.size": "the memory of groups is bounded",
    "max.connections": "the memory of connections is bounded",
    "group.share.persister.class.name": NO_JAVA,
    "listener.security.protocol.map": LOOPBACK,
    "listeners": LOOPBACK,
    "log.dir": "no data folder is guessed",
    "metric.reporters": NO_JAVA,
    "node.id": ONE_NODE,
    "offsets.topic.replication.factor": ONE_NODE,
    "principal.builder.class": NO_JAVA,
    "process.roles": ONE_NODE,
    "remote.log.metadata.manager.class.name": NO_JAVA,
    "queued.max.request.bytes": "the memory of requests is bounded",
    "sasl.oauthbearer.jwt.retriever.class": NO_JAVA,
    "sasl.oauthbearer.jwt.validator.class": NO_JAVA,
    "socket.listen.backlog.size": "one loop accepts between its other work",
    "share.coordinator.state.topic.min.isr": ONE_NODE,
    "share.coordinator.state.topic.replication.factor": ONE_NODE,
    "transaction.state.log.min.isr": ONE_NODE,
    "transaction.state.log.replication.factor": ONE_NODE,
}
TYPES = {"listener.security.protocol.map": "its entries are checked one by one"}
MODES = {
    "config.providers": "refused altogether",
    "listener.security.protocol.map": "listeners are fixed at the start",
    "listeners": "listeners are fixed at the start",
}
STRICTER = {
    "advertised.listeners": LOOPBACK,
    "broker.session.timeout.ms": "a session of no length has no meaning",
    "default.replication.factor": "Kafka fails later, when a topic is created",
    "group.consumer.assignors": "Java classes cannot run",
    "group.initial.rebalance.delay.ms": "a negative time has no meaning",
    "group.max.session.timeout.ms": "a session of no length has no meaning",
    "group.min.session.timeout.ms": "a session of no length has no meaning",
    "internal.segment.bytes": "a segment of no size has no meaning",
    "listeners": LOOPBACK,
    "log.cleaner.dedupe.buffer.size": "Kafka fails later, when its cleaner starts",
    "log.cleaner.io.buffer.load.factor": "a share of more than all has no meaning",
    "log.flush.interval.ms": "the topic key's own bound",
    "log.flush.scheduler.interval.ms": "the topic key's own bound",
    "log.roll.jitter.ms": "the topic key's own bound",
    "log.roll.ms": "the topic key's own bound",
    "max.connections.per.ip": "no client could connect",
    "offset.metadata.max.bytes": "a negative size has no meaning",
    "queued.max.request.bytes": "the memory of requests is bounded",
    "replica.high.watermark.checkpoint.interval.ms": "a negative time has no meaning",
    "replica.lag.time.max.ms": "a follower may not lag for no time",
}
LOOSER = {
    "controller.listener.names": "no effect",
    "controller.quorum.bootstrap.servers": "no effect",
    "controller.quorum.voters": "no effect",
    "group.share.assignors": "no effect",
    "log.dir": "unset and empty are one",
    "log.dirs": "unset and empty are one",
    "remote.log.metadata.manager.class.name": "no effect",
    "remote.log.metadata.manager.impl.prefix": "no effect",
    "remote.log.metadata.manager.listener.name": "no effect",
    "remote.log.storage.manager.class.name": "no effect",
    "remote.log.storage.manager.impl.prefix": "no effect",
}
