from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from lakelog.protocol.registry import APIS, Api
from lakelog.wire.elements import count_elements
from lakelog.wire.schema import Struct
from random_messages import random_message


def walked(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(walked, value))
    if isinstance(value, Struct):
        return sum(walked(getattr(value, field.name)) for field in value.__fields__)
    return 0


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_all_arrays_of_all_messages_are_counted(api: Api) -> None:
    random = Random(api.key)
    for kind in (api.request, api.response):
        for version in kind.__versions__:
            message = random_message(kind, version, random)
            assert count_elements(message) == walked(message)


def test_elements_of_elements_count() -> None:
    request = FetchRequest(
        topics=[FetchTopic(partitions=[FetchPartition() for _ in range(n)]) for n in (3, 0)],
        forgotten_topics_data=[ForgottenTopic(partitions=[1, 2, 3, 4])],
    )
    assert count_elements(request) == 2 + 3 + 1 + 4
