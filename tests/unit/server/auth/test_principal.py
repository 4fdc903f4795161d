from __future__ import annotations

from lakelog.server.auth.principal import ANONYMOUS, Principal


def test_a_principal_is_written_as_acls_and_quotas_name_it() -> None:
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
