from __future__ import annotations

import pytest

from lakelog.base.config.key import ConfigType
from lakelog.client.admin.configs import Configs, ConfigSource, ResourceType
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.protocol.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from scripted_broker import ScriptedBroker


def altered(code: int = 0, text: str | None = None) -> IncrementalAlterConfigsResponse:
    row = AlterConfigsResourceResponse(error_code=code, error_message=text)
    return IncrementalAlterConfigsResponse(responses=[row])


def test_values_have_their_sources_in_the_order_of_keys(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    synonym = DescribeConfigsSynonym(name="log.retention.ms", value="7", source=4)
    rows = [
        DescribeConfigsResourceResult(
            name="retention.ms", value="7", config_source=4, config_type=5, synonyms=[synonym]
        ),
        DescribeConfigsResourceResult(name="a.newer.key", config_source=99, config_type=99),
    ]
    result = DescribeConfigsResult(configs=rows)
    broker.on(DescribeConfigsRequest, DescribeConfigsResponse(results=[result]))
    found = Configs(cluster).describe(ResourceType.TOPIC, "orders", synonyms=True)
    assert list(found) == ["a.newer.key", "retention.ms"]
    entry = found["retention.ms"]
    assert (entry.source, entry.type) == (ConfigSource.STATIC_BROKER, ConfigType.LONG)
    assert entry.synonyms[0].name == "log.retention.ms"
    assert not entry.is_default
    assert (found["a.newer.key"].source, found["a.newer.key"].type) == (ConfigSource.UNKNOWN, None)


def test_an_unknown_topic_is_reported_without_retries(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    result = DescribeConfigsResult(error_code=3, error_message=None)
    broker.on(DescribeConfigsRequest, DescribeConfigsResponse(results=[result]))
    with pytest.raises(ClientError, match="topic 'absent'"):
        Configs(cluster).describe(ResourceType.TOPIC, "absent")
    assert len(broker.asked(DescribeConfigsRequest)) == 1


@pytest.mark.parametrize(("name", "asked"), [("2", 2), ("", 1)])
def test_the_settings_of_a_broker_come_from_that_broker(
    broker: ScriptedBroker, cluster: Cluster, name: str, asked: int
) -> None:
    """Another broker does not know its static settings."""
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        for each in (broker, other):
            each.on(DescribeConfigsRequest, DescribeConfigsResponse())
        Configs(cluster).describe(ResourceType.BROKER, name)
        requests = [len(each.asked(DescribeConfigsRequest)) for each in (broker, other)]
    assert requests == [int(asked == 1), int(asked == 2)]


def test_none_resets_a_key_and_a_lost_answer_is_repeated(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(IncrementalAlterConfigsRequest, None, altered())
    cluster.refresh()
    Configs(cluster).alter(ResourceType.TOPIC, "orders", {"a": "1", "b": None})
    request = broker.asked(IncrementalAlterConfigsRequest)[-1]
    rows = [(row.name, row.config_operation, row.value) for row in request.resources[0].configs]
    assert rows == [("a", 0, "1"), ("b", 1, None)]


def test_an_invalid_value_is_reported_in_the_words_of_the_broker(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(IncrementalAlterConfigsRequest, altered(40, "retention.ms=x: not a number"))
    with pytest.raises(ClientError, match=r"INVALID_CONFIG: retention\.ms=x: not a number"):
        Configs(cluster).alter(ResourceType.TOPIC, "orders", {"retention.ms": "x"})


def test_one_key_of_many_topics_is_requested_at_once(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    row = DescribeConfigsResourceResult(name="min.insync.replicas", value="2")
    results = [
        DescribeConfigsResult(resource_type=2, resource_name="orders", configs=[row]),
        DescribeConfigsResult(resource_type=2, resource_name="gone", error_code=3),
    ]
    broker.on(DescribeConfigsRequest, DescribeConfigsResponse(results=results))
    found = Configs(cluster).values(ResourceType.TOPIC, ["orders", "gone"], "min.insync.replicas")
    assert found == {"orders": "2"}
    (request,) = broker.asked(DescribeConfigsRequest)
    assert [each.configuration_keys for each in request.resources] == [["min.insync.replicas"]] * 2
