from __future__ import annotations

from lakelog.protocol.registry import APIS
from lakelog.server.auth.principal import ANONYMOUS
from lakelog.server.requests.gate import NoQuotas


def test_without_quotas_no_request_is_charged_whatever_its_size() -> None:
    quotas = NoQuotas()
    assert all(
        quotas.charge(ANONYMOUS, "client", api, size_bytes=100 << 20) is None
        for api in APIS.values()
    )
