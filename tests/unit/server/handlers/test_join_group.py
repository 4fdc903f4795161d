from __future__ import annotations

from fake_broker import FakeBroker, FakeContext
from lakelog.protocol.join_group import JoinGroupRequest
from lakelog.server.handlers.join_group import handle


class FakeGroups:
    def join_group(self, *arguments: object) -> tuple[object, ...]:
        return arguments


def test_the_coordinator_is_given_the_client_s_name_and_host() -> None:
    request, groups = JoinGroupRequest(group_id="g"), FakeGroups()
    passed = handle(FakeBroker(groups=groups).broker, FakeContext(9).context, request)
    assert passed == (request, 9, "a client", "/10.0.0.1")  # type: ignore[comparison-overlap]
