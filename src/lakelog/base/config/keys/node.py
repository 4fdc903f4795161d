"""The broker keys of a node: its ids, roles, listeners and data folder.

Names, types, defaults and bounds follow `AbstractKafkaConfig` of Kafka 4.3.1. `node.id`
is 1 and `listeners` is on loopback by default, so that one broker needs no configuration.
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigType, ConfigValue, Validator, at_least, fixed_key
from lakelog.base.endpoint import SecurityProtocol, parse_endpoint

_STRING, _LIST, _INT = ConfigType.STRING, ConfigType.LIST, ConfigType.INT
_ROLES = {"broker", "controller"}
_PROTECTED = {protocol.name for protocol in SecurityProtocol} - {"PLAINTEXT"}


def _are_endpoints(value: ConfigValue) -> bool:
    """Whether a list names unprotected listeners only, each name and port once."""
    if not isinstance(value, tuple) or not value:
        return False
    try:
        endpoints = [parse_endpoint(text) for text in value]
    except ValueError:
        return False
    names = {endpoint.name for endpoint in endpoints}
    return len(names) == len(endpoints) and not names & _PROTECTED


_ENDPOINTS = Validator(_are_endpoints, "a list of PLAINTEXT://HOST:PORT (no TLS, no SASL yet)")

NODE_KEYS = (
    fixed_key("node.id", _INT, 1, "Id of this broker in its cluster.", at_least(0)),
    fixed_key("broker.id", _INT, -1, "Older name of node.id; -1 is unset."),
    fixed_key(
        "broker.rack",
        _STRING,
        None,
        "Failure domain of this broker, such as a rack or an availability zone.",
    ),
    fixed_key(
        "process.roles",
        _LIST,
        "broker,controller",
        "Roles of this process; `broker` is required.",
        Validator(
            lambda roles: isinstance(roles, tuple) and {"broker"} <= set(roles) <= _ROLES,
            "broker, or broker,controller",
        ),
    ),
    fixed_key(
        "listeners",
        _LIST,
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses on which the broker accepts connections.",
        _ENDPOINTS,
    ),
    fixed_key(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that the broker returns to clients; when unset, the address that the client "
        "connected to.",
        _ENDPOINTS,
    ),
    fixed_key(
        "listener.security.protocol.map",
        _LIST,
        "PLAINTEXT:PLAINTEXT",
        "Security protocol of each listener name; entries without a listener are ignored.",
    ),
    fixed_key("log.dirs", _LIST, None, "Data folder; exactly one is supported."),
    fixed_key("log.dir", _LIST, None, "Data folder; used when log.dirs is unset."),
)
