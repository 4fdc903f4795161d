"""Members of classic groups in the format of the log."""

from __future__ import annotations

import pytest

from lakelog.coordinator.group.classic.member import Member, member_record, stored_member

MEMBER = Member(
    member_id="m",
    instance_id=None,
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=20_000,
    session_timeout_ms=10_000,
    protocols=(("range", b"subscription"),),
    assignment=b"assignment",
)


@pytest.mark.parametrize("timeout_ms", [20_000, -1])
def test_without_a_rebalance_timeout_the_session_timeout_counts(timeout_ms: int) -> None:
    """Records of version 0 have no rebalance timeout."""
    record = member_record(MEMBER, "range", b"assignment")
    record.rebalance_timeout = timeout_ms
    member = stored_member(record, "range")
    assert member.rebalance_timeout_ms == (20_000 if timeout_ms > 0 else 10_000)
    assert (member.member_id, member.session_timeout_ms) == ("m", 10_000)
    assert member.protocols == MEMBER.protocols
