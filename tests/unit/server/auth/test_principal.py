from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.registry import APIS
from lakelog.server.auth.principal import (
    ANONYMOUS,
    BrokersApart,
    NoQuotas,
    Principal,
    broker_principal,
)
from lakelog.server.routes import between_brokers


def test_a_principal_is_written_as_acls_and_quotas_name_it() -> None:
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_without_an_authorizer_an_anonymous_client_may_use_each_api() -> None:
    authorizer = BrokersApart(())
    assert {authorizer.authorize(ANONYMOUS, api) for api in APIS.values()} == {ErrorCode.NONE}


def test_only_a_broker_may_use_the_apis_between_brokers() -> None:
    authorizer = BrokersApart(between_brokers())
    refused = {
        api.name
        for api in APIS.values()
        if authorizer.authorize(ANONYMOUS, api) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    }
    assert refused == {
        "AlterPartition",
        "BrokerRegistration",
        "BrokerHeartbeat",
        "AllocateProducerIds",
    }
    broker = broker_principal(2)
    assert {authorizer.authorize(broker, api) for api in APIS.values()} == {ErrorCode.NONE}


def test_without_quotas_no_request_is_charged_whatever_its_size() -> None:
    quotas = NoQuotas()
    assert all(
        quotas.charge(ANONYMOUS, "client", api, size_bytes=100 << 20) is None
        for api in APIS.values()
    )
