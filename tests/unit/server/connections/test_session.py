from __future__ import annotations

import pytest

from fake_transport import FakeTransport
from lakelog.base.endpoint import SecurityProtocol
from lakelog.server.connections.session import ClientSession


def test_a_session_names_its_client_by_host_and_port() -> None:
    session = ClientSession(FakeTransport(), "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert session.peer_name == "127.0.0.1:9092"
    assert (session.listener_name, session.client_software) == ("PLAINTEXT", "")


def test_a_client_that_is_gone_has_no_session() -> None:
    class Gone(FakeTransport):
        def getpeername(self) -> None:
            raise OSError("not connected")

    with pytest.raises(OSError, match="not connected"):
        ClientSession(Gone(), "PLAINTEXT", SecurityProtocol.PLAINTEXT)
