"""How many source files a request passes through, from its bytes to the bytes of its answer.

Each request runs in a broker in this process that has no network (`tests/socketless_broker.py`).
`benchmarks/call_trace.py` defines the figures; they are the same in every run.

The broker has served a request of the same kind before, because it compiles the codec of a message
on first use. "Decoded" requests reach a broker that does not learn repeated requests; "repeated"
requests are served from the previous one. The connection has produced enough that the broker does
not verify the records of its next batch, except in the case "first of a connection".
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from call_trace import COLUMNS, CallTrace  # noqa: E402
from tables import Table, record, repeat_command, section, show  # noqa: E402

from lakelog.protocol.api import api_for  # noqa: E402
from lakelog.protocol.create_topics import CreatableTopic, CreateTopicsRequest  # noqa: E402
from lakelog.protocol.end_txn import EndTxnRequest  # noqa: E402
from lakelog.protocol.find_coordinator import FindCoordinatorRequest  # noqa: E402
from lakelog.protocol.init_producer_id import InitProducerIdRequest  # noqa: E402
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol  # noqa: E402
from lakelog.runtime.api import Timer  # noqa: E402
from lakelog.wire.framing import FRAME_SIZE_BYTES, decode_response, encode_request  # noqa: E402
from socketless_broker import FakeSocket, SocketlessBroker  # noqa: E402
from storage_kit import make_batch  # noqa: E402
from wire_client import fetch_request, produce_request  # noqa: E402

_GROUP, _TRANSACTION = 0, 1
_SETTLED = 8
"""Requests after which the broker handles the next one of a connection like the previous one."""
_IDLE_TURNS = 50
"""Turns of the event loop in which the broker finishes writing a transaction's markers."""
_TIMER_S_MAX, _NEVER_S = 0.1, 3600.0
_SENDING = (FakeSocket.send.__code__, FakeSocket.send_file.__code__)
_RECORD = bytes(make_batch(1))


class Client:
    """A client with one connection at a time to one broker."""

    def __init__(self, broker: SocketlessBroker) -> None:
        self.broker = broker
        self.trace = CallTrace()

    async def ask(self, message: Any, version: int) -> Any:
        """Return the response, and set `trace` to the trace of this request."""
        broker, api, self.trace = self.broker, api_for(type(message)), CallTrace(_SENDING)
        frame = b"".join(encode_request(api, version, 1, "paths", message))
        broker.socket.was_sent.clear()
        sys.setprofile(self.trace)
        try:
            broker.socket.deliver(frame)
            broker.clock.now_ms += 2  # past the delay of the first rebalance
            await broker.socket.was_sent.wait()
            for _ in range(_IDLE_TURNS):
                await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
        return decode_response(api, version, broker.take_answer()[FRAME_SIZE_BYTES:])[1]

    async def find_coordinator(self, key_type: int) -> None:
        """Wait until a coordinator serves requests; the first request creates its topic."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
        while (await self.ask(request, 4)).coordinators[0].error_code:
            pass

    async def produce(self, times: int = 1) -> None:
        for _ in range(times):
            await self.ask(produce_request("t", _RECORD), 12)

    async def fetch(self, times: int, *, in_session: bool = False) -> None:
        session = (0, 0) if in_session else (0, -1)
        for epoch in range(1, times + 1):
            request = fetch_request("t", 0, partition_max_bytes=1, session=session)
            response = await self.ask(request, 12)
            assert response.responses[0].partitions[0].records, response
            if in_session:
                session = (response.session_id, epoch)

    async def transaction(self, name: str) -> tuple[CallTrace, CallTrace]:
        """Return the traces of its first Produce and of its EndTxn (version 2 of KIP-890)."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        owner = await self.ask(request, 4)
        producer = (owner.producer_id, owner.producer_epoch, 0)
        batch = bytes(make_batch(1, producer=producer, transactional=True))
        produced = await self.ask(produce_request("t", batch, transaction=name), 12)
        assert produced.responses[0].partition_responses[0].error_code == 0, produced
        first = self.trace
        end = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=0, committed=True
        )
        ended = await self.ask(end, 5)
        assert ended.error_code == 0, ended
        return first, self.trace

    async def join(self, group: str, version: int) -> None:
        """Join as the first member. From version 4 on the broker first assigns an id (KIP-394)."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
        )
        if version >= 4:
            request.member_id = (await self.ask(request, version)).member_id
        response = await self.ask(request, version)
        assert response.error_code == 0, response


class Way(NamedTuple):
    """The traced way of one request."""

    request: str
    case: str
    trace: CallTrace
    to_answer: bool = True
    """Whether the way ends with the answer."""

    def row(self) -> list[str]:
        return [self.request, self.case, *self.trace.figures(to_answer=self.to_answer)]

    def __str__(self) -> str:
        lines = self.trace.sequence(to_answer=self.to_answer)
        return "\n".join([f"{self.request}, {self.case}", *lines, ""])


async def _decoded(client: Client) -> list[Way]:
    await client.produce(_SETTLED)
    ways = [Way("Produce", "decoded", client.trace)]
    await client.fetch(_SETTLED)
    ways.append(Way("Fetch", "decoded", client.trace))
    await client.fetch(_SETTLED, in_session=True)
    ways.append(Way("Fetch", "decoded, in a session", client.trace))
    await client.transaction("before")
    produced, ended = await client.transaction("traced")
    ways.append(Way("Produce", "first of a transaction", produced))
    ways.append(Way("EndTxn", "to the answer", ended))
    ways.append(Way("EndTxn", "with its markers", ended, to_answer=False))
    for version in (3, 9):
        for group in ("before", "traced"):
            await client.join(f"{group} {version}", version)
        ways.append(Way("JoinGroup", f"first member, version {version}", client.trace))
    return ways


async def _learned(client: Client) -> list[Way]:
    await client.produce()
    client.broker.connect()
    await client.produce()
    ways = [Way("Produce", "first of a connection", client.trace)]
    await client.produce(_SETTLED)
    ways.append(Way("Produce", "repeated", client.trace))
    await client.fetch(_SETTLED)
    ways.append(Way("Fetch", "repeated", client.trace))
    await client.fetch(_SETTLED, in_session=True)
    ways.append(Way("Fetch", "repeated, in a session", client.trace))
    return ways


async def _measure(folder: Path, *, repeats: bool) -> list[Way]:
    broker = SocketlessBroker(
        folder, repeats=repeats, settings={"group_initial_rebalance_delay_ms": "1"}
    )
    _suspend_upkeep(broker)
    await broker.start()
    try:
        client = Client(broker)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        for key_type in (_GROUP, _TRANSACTION):
            await client.find_coordinator(key_type)
        return await (_learned(client) if repeats else _decoded(client))
    finally:
        await broker.stop()


def _suspend_upkeep(broker: SocketlessBroker) -> None:
    """Postpone the broker's periodic work, which is no part of a request."""
    call_later = broker.tasks.call_later

    def call_later_if_soon(delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return call_later(delay_s if delay_s < _TIMER_S_MAX else _NEVER_S, callback, *args)

    broker.tasks.call_later = call_later_if_soon  # type: ignore[method-assign]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/paths.py", description=__doc__)
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    parser.add_argument("--sequence", metavar="REQUEST", help="print its calls in their order")
    options = parser.parse_args(argv)
    ways = []
    for repeats in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            ways += asyncio.run(_measure(Path(folder), repeats=repeats))
    if options.sequence:
        print(*(way for way in ways if way.request == options.sequence), sep="\n")
        return
    rows = [way.row() for way in ways]
    tables = [Table(("request", "case", *COLUMNS), rows, len(rows))]
    show(tables)
    if options.record:
        about = (
            "Source files that a request passes through, moves between them, returns to an earlier "
            "file, and calls; `benchmarks/call_trace.py` defines them. Repeat with "
            f"{repeat_command('paths', argv)}."
        )
        record(section("paths of requests", about, tables))


if __name__ == "__main__":
    main(sys.argv[1:])
