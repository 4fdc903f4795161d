"""DeleteTopics (key 20): delete topics."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, error_text, int16, int32, string, uuid


class DeleteTopicState(Struct):
    """A topic by name, or by id with a null name."""

    name: str | None = string(nullable="0+", default=None)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Message, versions="1-6", flexible="4+"):
    """Deletes topics with their records and their groups' offsets.

    Versions: 4 is flexible, 6 identifies topics by name or id.
    """

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """The result for one topic; its name is null if the requested id is unknown."""

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = error_text("5+", default=None)


class DeleteTopicsResponse(Message, versions="1-6", flexible="4+"):
    """The result for each topic. Versions: 5 adds a message, 6 the id."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


API = Api(20, DeleteTopicsRequest, DeleteTopicsResponse)
