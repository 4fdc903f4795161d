"""DeleteTopics (20): deletes topics by name, from version 6 on also by id.

The change of metadata may use the disk's reserve: it frees space.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import TopicReference, TopicResult, plan_delete_topics
from lakelog.protocol.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_IDS_SINCE = 6
_DISABLED_CODE_SINCE = 3


async def handle(
    broker: Broker, context: Context, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics; a `KafkaError` of the whole change is the error of each topic."""
    references = _references(context, request)
    enabled = broker.config.get_bool("delete.topic.enable")
    try:
        results = await broker.metadata.submit(
            lambda image: plan_delete_topics(image, references, enabled=enabled), from_reserve=True
        )
    except KafkaError as error:
        return _failed(context, request, error)
    return _response(context, results)


def _references(context: Context, request: DeleteTopicsRequest) -> list[TopicReference]:
    if context.version >= _IDS_SINCE:
        return [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicReference(name) for name in request.topic_names]


def _failed(
    context: Context, request: DeleteTopicsRequest, error: KafkaError
) -> DeleteTopicsResponse:
    results = [
        TopicResult(topic.name, topic.topic_id, error.code, error.message)
        for topic in _references(context, request)
    ]
    return _response(context, results)


def _response(context: Context, results: list[TopicResult]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=_code(result.error, context.version),
                error_message=result.message,
            )
            for result in results
        ]
    )


API = ServedApi(DeleteTopicsRequest, handle, done="By name and by id.", by_controller=_failed)


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code as clients of `version` know it: older ones lack the error."""
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < _DISABLED_CODE_SINCE:
        return ErrorCode.INVALID_REQUEST
    return code
