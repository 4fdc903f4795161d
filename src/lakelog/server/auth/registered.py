"""The processes that are registered as brokers, with which the proofs of callers are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lakelog.metadata.errors import MetadataError
from lakelog.metadata.log import MetadataLog
from lakelog.runtime.api import Tasks
from lakelog.server.auth.broker_proof import ProofCheck
from lakelog.wire.schema import Buffer


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
        known = self._metadata.image.brokers.get(check.node_id)
        answer = None if known is None else check.answer(token, known.incarnation_id)
        if answer is not None:
            return answer
        live = (await self._live()).get(check.node_id)
        return None if live is None else check.answer(token, live)

    async def _live(self) -> Mapping[int, bytes]:
        """Return the live brokers of the store; none while it cannot be read."""
        if self._looking is None:
            self._looking = self._tasks.spawn(self._look(), name="look for brokers")
        found: Mapping[int, bytes] = await asyncio.shield(self._looking)
        return found

    async def _look(self) -> Mapping[int, bytes]:
        try:
            return await self._metadata.live_brokers()
        except MetadataError:
            return {}
        finally:
            self._looking = None
