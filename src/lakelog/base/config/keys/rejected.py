"""Broker keys of Apache Kafka for features that lakelog lacks and that would be missed.

A value other than the default ends the start with the reason: a cluster that was configured to
check its clients, for example, must not start without that check.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigType, rejected_key

_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST

REJECTED_KEYS = (
    rejected_key(
        "security.inter.broker.protocol", _STRING, "PLAINTEXT", "listeners support PLAINTEXT only"
    ),
    rejected_key("authorizer.class.name", _STRING, "", "authorization is not supported"),
    rejected_key("super.users", _STRING, "", "authorization is not supported"),
    rejected_key(
        "create.topic.policy.class.name", ConfigType.CLASS, None, "Java classes are not supported"
    ),
    rejected_key(
        "alter.config.policy.class.name", ConfigType.CLASS, None, "Java classes are not supported"
    ),
    rejected_key(
        "client.quota.callback.class", ConfigType.CLASS, None, "Java classes are not supported"
    ),
    rejected_key("config.providers", _LIST, "", "values are used literally"),
    rejected_key(
        "remote.log.storage.system.enable", _BOOLEAN, "false", "tiered storage is not supported"
    ),
)
