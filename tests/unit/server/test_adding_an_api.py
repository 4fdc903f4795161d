"""Two messages and a handler make an API, in the tables of one family; no other file knows of it.

The broker runs in a process of its own, because the tables of APIs are made once in a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, json, sys
from pathlib import Path

from lakelog.protocol import cluster
from lakelog.protocol.api import Api, api_for
from lakelog.wire.schema import Message, string


class EchoRequest(Message, versions="0-2", flexible="2+"):
    text: str = string()


class EchoResponse(Message, versions="0-2", flexible="2+"):
    text: str = string()


cluster.APIS += (Api(1000, EchoRequest, EchoResponse),)

from lakelog.server.handlers import cluster as handlers
from lakelog.server.served_api import ServedApi


def echo(broker, context, request):
    return EchoResponse(text=request.text)


handlers.APIS += (ServedApi(EchoRequest, echo, done="Any text.", versions="0-1"),)

from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.registry import APIS
from lakelog.server.api_page import api_page
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import SocketlessBroker


async def main():
    broker = SocketlessBroker(Path(sys.argv[1]))
    await broker.start()

    def ask(request, version):
        api = api_for(type(request))
        answer = broker.ask(b"".join(encode_request(api, version, 1, "test", request)))
        return decode_response(api, version, answer[4:])[1] if answer else None

    rows = {row.api_key: row for row in ask(ApiVersionsRequest(), 0).api_keys}
    requests = broker.server.broker.requests
    text = ask(EchoRequest(text="hello"), 1).text
    requests.fold()
    found = {
        "registered": repr(APIS[1000]),
        "advertised": [rows[1000].min_version, rows[1000].max_version],
        "answered": text,
        "listed": [row for row in api_page().splitlines() if "Echo" in row],
        "counted": [name for name, _ in requests.seen()],
        "not served": ask(EchoRequest(text="hello"), 2),
        "closed": broker.connection.closed,
    }
    await broker.stop()
    print(json.dumps(found))


asyncio.run(main())
"""


def test_an_api_is_two_messages_and_one_handler(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == {
        "registered": "Api(1000, Echo, 0-2)",
        "advertised": [0, 1],
        "answered": "hello",
        "listed": ["| 1000 | Echo | 0–1 | Any text. |  |"],
        "counted": ["ApiVersions", "Echo"],
        "not served": None,
        "closed": True,
    }
