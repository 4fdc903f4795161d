"""How the two ends of a connection between brokers prove that they are brokers of the cluster.

The incarnation id of a process, 16 random bytes, is stored in the metadata store alone: a process
that knows the ids of both ends can read the store, and is a broker. The proof does not contain the
ids. Each end sends an HMAC-SHA256 over fresh random numbers of both, with the ids as its key. So a
recorded proof is worthless on another connection and for another process.

    caller                                       callee
      SaslHandshake  LAKELOG-BROKER   -->
      SaslAuthenticate  node id, R1   -->
                                      <--  R2
      SaslAuthenticate  HMAC("caller", ...)  -->
                                      <--  HMAC("callee", ...)

A proof does not encrypt the connection, and does not protect it from a host in between.

The processes that are registered as brokers, with which the proofs of callers are compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Generator, Mapping
from struct import Struct
from typing import Any, NamedTuple

from lakelog.base.errors import error_code
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.log import MetadataLog
from lakelog.network_client.errors import InvalidResponseError, NegotiationError
from lakelog.protocol.connections import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from lakelog.runtime.api import Tasks
from lakelog.wire.schema import Buffer, Message

MECHANISM = "LAKELOG-BROKER"
NONCE_BYTES = 32
_FIRST = Struct(f">i{NONCE_BYTES}s")


class Process(NamedTuple):
    """One process of a broker."""

    node_id: int
    incarnation_id: bytes


class Ends(NamedTuple):
    """The processes that a connection is to connect."""

    cluster_id: str
    caller: Process
    callee: Process

    def mac(self, end: bytes, caller_nonce: bytes, callee_nonce: bytes) -> bytes:
        """Return the proof of one end."""
        key = self.caller.incarnation_id + self.callee.incarnation_id
        nodes = Struct(">ii").pack(self.caller.node_id, self.callee.node_id)
        text = end + nodes + caller_nonce + callee_nonce + self.cluster_id.encode()
        return hmac.digest(key, text, hashlib.sha256)


Proof = Generator[Message, Message, None]
"""Yields requests, is sent their responses, and ends when both ends have proved themselves."""


def prove(ends: Ends, nonce: bytes) -> Proof:
    """Return the side of the caller; `nonce` is random.

    Raises `NegotiationError` for a refusal, and for a callee that is not the expected process.
    """
    chosen = yield SaslHandshakeRequest(mechanism=MECHANISM)
    assert isinstance(chosen, SaslHandshakeResponse)
    if chosen.error_code:
        raise NegotiationError(error_code(chosen.error_code))
    first = _FIRST.pack(ends.caller.node_id, nonce)
    other = _token((yield SaslAuthenticateRequest(auth_bytes=first)))
    if len(other) != NONCE_BYTES:
        raise InvalidResponseError(f"{len(other)} random bytes, not {NONCE_BYTES}")
    own = ends.mac(b"caller", nonce, other)
    answer = _token((yield SaslAuthenticateRequest(auth_bytes=own)))
    if not hmac.compare_digest(answer, ends.mac(b"callee", nonce, other)):
        raise InvalidResponseError("the process at this address does not prove which broker it is")


def _token(response: Message) -> bytes:
    assert isinstance(response, SaslAuthenticateResponse)
    if response.error_code:
        raise NegotiationError(error_code(response.error_code))
    return bytes(response.auth_bytes)


class ProofCheck:
    """The side of the callee, on one connection."""

    __slots__ = ("_caller_nonce", "_cluster_id", "_nonce", "_own", "node_id")

    def __init__(self, cluster_id: str, own: Process, nonce: bytes) -> None:
        """nonce: random."""
        self._cluster_id = cluster_id
        self._own = own
        self._nonce = nonce
        self._caller_nonce = b""
        self.node_id = -1
        """The broker that the caller claims to be; -1 before its first token."""

    def begin(self, token: Buffer) -> bytes | None:
        """Return the answer to the first token; None if it is malformed."""
        if len(token) != _FIRST.size:
            return None
        self.node_id, self._caller_nonce = _FIRST.unpack(token)
        return self._nonce if self.node_id >= 0 else None

    def answer(self, token: Buffer, incarnation_id: bytes) -> bytes | None:
        """Return the answer to the second token; None unless it is that of this process."""
        ends = Ends(self._cluster_id, Process(self.node_id, incarnation_id), self._own)
        if not hmac.compare_digest(bytes(token), ends.mac(b"caller", *self._nonces)):
            return None
        return ends.mac(b"callee", *self._nonces)

    @property
    def _nonces(self) -> tuple[bytes, bytes]:
        return self._caller_nonce, self._nonce


class RegisteredBrokers:
    """The brokers of the image, and the live ones of the store, which it may not show yet.

    Any client can cause a read of the store by a wrong proof. So only one read is under way at a
    time, and all waiting proofs use its result.
    """

    def __init__(self, metadata: MetadataLog, tasks: Tasks) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._looking: Any = None

    async def answer(self, check: ProofCheck, token: Buffer) -> bytes | None:
        """Return the answer to a caller's proof; None unless the caller is a registered process."""
        broker = self._metadata.image.brokers.get(check.node_id)
        answer = None if broker is None else check.answer(token, broker.incarnation_id)
        if answer is not None:
            return answer
        live = (await self._live()).get(check.node_id)
        return None if live is None else check.answer(token, live)

    async def _live(self) -> Mapping[int, bytes]:
        """Return the live brokers of the store; none while it cannot be read."""
        if self._looking is None:
            self._looking = self._tasks.spawn(self._look(), name="look for brokers")
        incarnations: Mapping[int, bytes] = await asyncio.shield(self._looking)
        return incarnations

    async def _look(self) -> Mapping[int, bytes]:
        try:
            return await self._metadata.live_brokers()
        except MetadataError:
            return {}
        finally:
            self._looking = None
