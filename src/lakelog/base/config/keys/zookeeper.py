"""Broker keys for a secured ZooKeeper ensemble, by the names of Apache Kafka 3 (KIP-515).

Kafka 4 has removed them with ZooKeeper. Certificates and keys are files in PEM form (KIP-651).
"""

from __future__ import annotations

from lakelog.base.config.key import ConfigKey, ConfigType, Validator, rejected_key

_ALGORITHM = Validator(lambda value: value in ("", "HTTPS", "https"), "HTTPS, or nothing")
_BOOLEAN, _STRING = ConfigType.BOOLEAN, ConfigType.STRING

ZOOKEEPER_KEYS = (
    ConfigKey(
        "lakelog.zookeeper.digest.file",
        _STRING,
        None,
        "File with USER:PASSWORD, by which the broker authenticates to ZooKeeper (scheme digest). "
        "Other users of the host may not have access to it.",
    ),
    ConfigKey(
        "zookeeper.set.acl",
        _BOOLEAN,
        "false",
        "Whether nodes that the broker creates in ZooKeeper are accessible only to brokers with "
        "the same digest or the same subject in their certificates.",
    ),
    ConfigKey(
        "zookeeper.ssl.client.enable",
        _BOOLEAN,
        "false",
        "Whether connections to ZooKeeper use TLS; lakelog.metadata.store then names secure ports.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.location",
        _STRING,
        None,
        "File with the certificates of the authorities of ZooKeeper's certificates; without one, "
        "the authorities of the operating system.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.location",
        _STRING,
        None,
        "File with the broker's private key and certificates, for servers that require them.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        "Password of the private key, if it is encrypted.",
    ),
    ConfigKey(
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
