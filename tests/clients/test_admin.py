"""Administration by each library."""

from __future__ import annotations

from contextlib import closing

import pytest

from clients.adapters.api import Admin, Client, Sent
from clients.reading import poll_count, read
from waiting import eventually
from wire_client import WireClient, host_and_port, topic_id_of


@pytest.mark.moving
def test_a_topic_from_creation_to_deletion(admin: Admin, name: str) -> None:
    admin.create_topic(name, 2, {"retention.ms": "3600000", "cleanup.policy": "compact,delete"})
    eventually(lambda: name in admin.topics())
    assert admin.partition_count(name) == 2
    config = admin.topic_config(name)
    assert (config["retention.ms"], config["cleanup.policy"]) == ("3600000", "compact,delete")
    assert config["segment.bytes"] == "1073741824"

    with pytest.raises(Exception, match=r"(?i)topic_?already_?exists"):
        admin.create_topic(name, 2)

    admin.delete_topic(name)
    eventually(lambda: name not in admin.topics())
    with pytest.raises(Exception, match=r"(?i)unknown_?topic_?or_?part"):
        admin.delete_topic(name)


def test_invalid_topics_are_refused(admin: Admin, name: str) -> None:
    with pytest.raises(Exception, match=r"(?i)invalid_?partitions"):
        admin.create_topic(name, 0)
    with pytest.raises(Exception, match=r"(?i)(invalid_?topic|topic_exception)"):
        admin.create_topic("no spaces please", 1)
    with pytest.raises(Exception, match=r"(?i)invalid_?config"):
        admin.create_topic(name, 1, {"retention.ms": "soon"})
    assert name not in admin.topics()


def test_partitions_can_only_be_added(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    client.produce(name, [Sent(b"before")])
    admin.add_partitions(name, 3)
    eventually(lambda: admin.partition_count(name) == 3)
    with pytest.raises(Exception, match=r"(?i)invalid_?partitions"):
        admin.add_partitions(name, 2)

    assert client.produce(name, [Sent(b"after", partition=2)]) == [(2, 0)]
    received = read(client, name, 2, (0, 1, 2))
    assert [(r.partition, r.value) for r in received] == [(0, b"before"), (2, b"after")]


def test_configs_are_altered_incrementally(client: Client, admin: Admin, name: str) -> None:
    if not client.alters_configs:
        with pytest.raises(NotImplementedError):
            admin.alter_topic_config(name, {})
        return
    admin.create_topic(name, 1, {"retention.ms": "3600000"})
    admin.alter_topic_config(name, {"max.message.bytes": "2000"})
    eventually(lambda: admin.topic_config(name)["max.message.bytes"] == "2000")
    assert admin.topic_config(name)["retention.ms"] == "3600000"

    with pytest.raises(Exception, match=r"(?i)invalid_?config"):
        admin.alter_topic_config(name, {"retention.ms": "soon"})
    assert admin.topic_config(name)["retention.ms"] == "3600000"


def test_a_recreated_topic_starts_empty(
    client: Client, admin: Admin, name: str, bootstrap: str
) -> None:
    admin.create_topic(name, 1)
    client.produce(name, [Sent(b"old %d" % i) for i in range(10)])
    with WireClient(bootstrap) as wire:
        old_id = topic_id_of(wire, name)
    admin.delete_topic(name)
    eventually(lambda: name not in admin.topics())
    admin.create_topic(name, 1)
    eventually(lambda: name in admin.topics())
    with WireClient(bootstrap) as wire:
        eventually(lambda: topic_id_of(wire, name) != old_id)

    assert client.produce(name, [Sent(b"new 0"), Sent(b"new 1")]) == [(0, 0), (0, 1)]
    assert [record.value for record in read(client, name, 2)] == [b"new 0", b"new 1"]


def test_offsets_and_the_cluster(client: Client, admin: Admin, name: str, bootstrap: str) -> None:
    admin.create_topic(name, 1)
    assert admin.earliest_and_latest(name, 0) == (0, 0)
    client.produce(name, [Sent(b"%d" % i) for i in range(7)])
    assert admin.earliest_and_latest(name, 0) == (0, 7)
    expected = {host_and_port(address) for address in bootstrap.split(",")}
    eventually(lambda: {(host, port) for _, host, port in admin.cluster_nodes()} == expected)


@pytest.mark.moving
def test_a_group_is_listed_and_described(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    client.produce(name, [Sent(b"x")])
    with closing(client.consumer(name, name)) as consumer:
        poll_count(consumer, 1)
        eventually(lambda: name in admin.groups())
        assert admin.describe_group(name) == ("Stable", 1)
        consumer.commit()
    eventually(lambda: admin.describe_group(name) == ("Empty", 0))
    assert admin.committed(name, name) == {0: 1}
