from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.registry import APIS
from lakelog.server.auth.authorizer import AllowEveryone
from lakelog.server.auth.principal import ANONYMOUS


def test_without_an_authorizer_an_anonymous_client_may_use_each_api() -> None:
    authorizer = AllowEveryone()
    assert {authorizer.authorize(ANONYMOUS, api) for api in APIS.values()} == {ErrorCode.NONE}
