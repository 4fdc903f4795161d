from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.dialogue.errors import DialogueError
from lakelog.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lakelog.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from lakelog.server.auth.broker_proof import (
    MECHANISM,
    NONCE_BYTES,
    Ends,
    Process,
    ProofCheck,
    prove,
)
from lakelog.wire.schema import Message

CALLER, CALLEE = Process(1, b"a" * 16), Process(2, b"b" * 16)
ENDS = Ends("cluster", CALLER, CALLEE)
ONE, TWO = b"1" * NONCE_BYTES, b"2" * NONCE_BYTES


class Callee:
    """A callee that knows the caller as `caller`, and the tokens that crossed the network."""

    def __init__(
        self, own: Process = CALLEE, caller: Process = CALLER, cluster_id: str = "cluster"
    ) -> None:
        self._check = ProofCheck(cluster_id, own, TWO)
        self._caller = caller
        self.tokens: list[bytes] = []
        self.is_convinced = False

    def respond(self, request: Message) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            assert request.mechanism == MECHANISM
            return SaslHandshakeResponse(mechanisms=[MECHANISM])
        assert isinstance(request, SaslAuthenticateRequest)
        token = bytes(request.auth_bytes)
        self.tokens.append(token)
        if self._check.node_id < 0:
            answer = self._check.begin(token)
        else:
            answer = self._check.answer(token, self._caller.incarnation_id)
            self.is_convinced = answer is not None
        if answer is None:
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        self.tokens.append(answer)
        return SaslAuthenticateResponse(auth_bytes=answer)


def call(callee: Callee, ends: Ends = ENDS, nonce: bytes = ONE) -> bool:
    """Return whether the caller is convinced."""
    proof = prove(ends, nonce)
    try:
        request = next(proof)
        while True:
            request = proof.send(callee.respond(request))
    except StopIteration:
        return True
    except DialogueError:
        return False


def test_two_processes_of_a_cluster_convince_each_other_without_their_secrets() -> None:
    callee = Callee()
    assert call(callee)
    assert callee.is_convinced
    crossed = b"".join(callee.tokens)
    assert CALLER.incarnation_id not in crossed
    assert CALLEE.incarnation_id not in crossed


@pytest.mark.parametrize(
    "ends",
    [
        ENDS._replace(caller=Process(1, b"x" * 16)),
        ENDS._replace(callee=Process(2, b"x" * 16)),
        ENDS._replace(caller=Process(3, CALLER.incarnation_id)),
        ENDS._replace(callee=Process(3, CALLEE.incarnation_id)),
        ENDS._replace(cluster_id="another"),
    ],
    ids=["caller", "callee", "caller's node id", "callee's node id", "cluster"],
)
def test_a_caller_that_does_not_know_both_processes_is_refused(ends: Ends) -> None:
    class Known(Callee):
        def respond(self, request: Message) -> Message:
            response = super().respond(request)
            self._check.node_id = CALLER.node_id if self._check.node_id >= 0 else -1
            return response

    callee = Known()
    assert not call(callee, ends)
    assert not callee.is_convinced


def test_a_process_that_cannot_read_the_metadata_does_not_pass_for_the_callee() -> None:
    class Squatter(Callee):
        """Accepts everything, at the address of another broker."""

        def respond(self, request: Message) -> Message:
            super().respond(request)
            if isinstance(request, SaslHandshakeRequest):
                return SaslHandshakeResponse()
            return SaslAuthenticateResponse(auth_bytes=bytes(NONCE_BYTES))

    assert not call(Squatter())


def test_a_recorded_proof_is_worth_nothing() -> None:
    callee = Callee()
    call(callee)
    first, _, proof, _ = callee.tokens
    later = ProofCheck("cluster", CALLEE, b"3" * NONCE_BYTES)
    assert later.begin(first) is not None
    assert later.answer(proof, CALLER.incarnation_id) is None


@pytest.mark.parametrize("token", [b"", b"x", bytes(1 << 20), b"\xff" * (4 + NONCE_BYTES)])
def test_a_malformed_first_token_is_refused(token: bytes) -> None:
    assert ProofCheck("cluster", CALLEE, TWO).begin(token) is None


def test_a_callee_that_does_not_have_the_mechanism_ends_the_proof() -> None:
    proof = prove(ENDS, ONE)
    next(proof)
    with pytest.raises(DialogueError, match="ILLEGAL_SASL_STATE"):
        proof.send(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
