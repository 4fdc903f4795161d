from __future__ import annotations

import subprocess
import sys

import pytest

from lakelog.protocol.api import Api, api_for
from lakelog.protocol.groups import HeartbeatRequest, HeartbeatResponse
from lakelog.protocol.offsets import OffsetDeleteRequest
from lakelog.protocol.produce import ProduceResponse
from lakelog.wire.schema import Message


def test_an_api_has_the_versions_of_its_messages() -> None:
    heartbeat = api_for(HeartbeatRequest)
    assert repr(heartbeat) == "Api(12, Heartbeat, 0-4)"
    assert repr(heartbeat.versions) == "0-4"
    assert (heartbeat.request, heartbeat.response) == (HeartbeatRequest, HeartbeatResponse)
    assert heartbeat.flexible_from == 4
    assert api_for(OffsetDeleteRequest).flexible_from > 1000, "never"


def test_a_class_that_is_no_request_has_no_api() -> None:
    for kind in (Message, HeartbeatResponse):
        with pytest.raises(KeyError):
            api_for(kind)


def test_an_api_is_one_request_and_its_response() -> None:
    with pytest.raises(AssertionError):
        Api(1000, HeartbeatRequest, ProduceResponse)
    assert api_for(HeartbeatRequest).key == 12


def test_one_family_is_declared_without_the_others() -> None:
    program = (
        "import sys\n"
        "from lakelog.protocol.connections import ApiVersionsRequest\n"
        "from lakelog.protocol.api import api_for\n"
        "loaded = {name for name in sys.modules if name.startswith('lakelog.protocol.')}\n"
        "assert loaded == {'lakelog.protocol.api', 'lakelog.protocol.connections'}, loaded\n"
        "assert api_for(ApiVersionsRequest).key == 18\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
