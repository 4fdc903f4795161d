"""A cluster whose coordinators do not know a transaction that blocks consumers."""

from __future__ import annotations

from clients.adapters.transactions import COMMITTED, read_all
from lakelog.base.errors import ErrorCode
from lakelog.client.producer import TransactionalProducer
from lakelog.testing import Broker, cluster
from waiting import eventually
from wire_client import WireClient, batch_of, produce_request

UNVERIFIED = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "2",
}


def is_stored(leader: Broker) -> bool:
    """Return whether the leader has taken a batch of a transaction without a coordinator."""
    batch = batch_of(b"hanging", producer=(4711, 0, 0), transactional=True)
    request = produce_request("orders", batch, transaction="unknown")
    with WireClient(leader.bootstrap_servers) as wire:
        answer = wire.call(request, 11).responses[0].partition_responses[0]
    return bool(answer.error_code == ErrorCode.NONE)


def test_the_next_leader_ends_it() -> None:
    with cluster({"orders": 1}, settings=UNVERIFIED) as brokers:
        leader = brokers.brokers[brokers.leader_id("orders")]
        eventually(lambda: is_stored(leader), what="the leader knows the new topic")
        other = next(each for each in brokers.brokers.values() if each is not leader)
        address = other.bootstrap_servers
        with TransactionalProducer(address, "billing") as producer, producer.transaction():
            producer.send("orders", b"held back", partition=0)
        assert read_all(address, "orders", COMMITTED) == []
        leader.kill()
        eventually(lambda: read_all(address, "orders", COMMITTED) == [b"held back"])
        leader.start()
        brokers.await_in_sync()
