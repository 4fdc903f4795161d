"""Changes of the metadata that clients request from any broker."""

from __future__ import annotations

from functools import partial

from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from lakelog.server.forwarding import at_controller
from lakelog.server.handlers import create_topics
from lakelog.server.routes import served_apis
from memory_broker import MemoryBroker

FORWARDED = {19, 20, 33, 37, 43, 44, 45, 57, 64}


def test_the_apis_that_change_the_metadata_are_sent_on() -> None:
    assert {each.api.key for each in served_apis() if each.by_controller} == FORWARDED


def test_a_client_gets_its_topic_although_the_controller_has_died() -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    with MemoryBroker() as world:
        gone = ControllerTerm(2, 50)
        world.metadata._term = gone
        world.broker.metadata._learn(gone)
        handle = partial(_at_controller)
        response = world.ask(handle, CreateTopicsRequest(topics=[topic]), 7)
        assert [each.error_code for each in response.topics] == [0]
        assert world.partition("t").is_online


def _at_controller(broker, context, request):  # type: ignore[no-untyped-def]
    return at_controller(broker, create_topics.handle, context, request)
