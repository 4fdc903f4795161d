"""The pages of a broker while it starts, serves and stops."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.runtime.aio import AsyncioNet, AsyncioTasks
from lakelog.runtime.posix import PosixDisk, PythonProcesses, SystemClock, SystemRandom
from lakelog.server.app import Server
from lakelog.server.options import Environment, ServeOptions, StartError


class Admission:
    """Holds up a coroutine method of the broker's parts."""

    def __init__(self, owner: Any, name: str) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self._method = getattr(owner, name)
        setattr(owner, name, self._pass)

    async def _pass(self, *values: Any) -> Any:
        self.reached.set()
        await self.open.wait()
        return await self._method(*values)


def _server(data: Path, tasks: AsyncioTasks, http: str) -> Server:
    clock = SystemClock()
    world = Environment(
        clock,
        PosixDisk(),
        AsyncioNet(asyncio.get_running_loop()),
        tasks,
        SystemRandom(),
        PythonProcesses(),
        EmbeddedStore(data / METADATA_FILE, clock),
        64,
    )
    return Server(ServeOptions(data, BrokerConfig({}), "127.0.0.1:0", http=http), world)


async def _readiness(address: tuple[str, int]) -> tuple[int, list[str]]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), [failing["check"] for failing in json.loads(body)["failing"]]


def test_a_broker_is_ready_between_its_start_and_its_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(tasks: AsyncioTasks) -> None:
        server = _server(tmp_path / "data", tasks, "127.0.0.1:0")
        recovery = Admission(server._replicas.logs, "load")
        end = Admission(server._maintenance, "stop")
        starting = asyncio.ensure_future(server.start())
        await recovery.reached.wait()
        (line,) = (record for record in caplog.records if "health on" in record.message)
        address = ("127.0.0.1", int(line.message.rpartition(":")[2]))
        assert await _readiness(address) == (503, ["recovered", "accepting"])
        recovery.open.set()
        await starting
        assert await _readiness(address) == (200, [])
        stopping = asyncio.ensure_future(server.stop())
        await end.reached.wait()
        assert await _readiness(address) == (503, ["accepting"])
        end.open.set()
        await stopping
        with pytest.raises(ConnectionError):
            await _readiness(address)

    async def whole() -> None:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        try:
            await scenario(tasks)
        finally:
            tasks.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(asyncio.wait_for(whole(), 120))


def test_an_address_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    async def whole() -> None:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        taken = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        try:
            with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port} for http"):
                await _server(tmp_path / "data", tasks, f"127.0.0.1:{port}").start()
        finally:
            taken.close()
            tasks.close()

    asyncio.run(asyncio.wait_for(whole(), 120))
