"""`lakelog debug`: shows the requests that a broker handles, from its HTTP endpoint."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.options import Output, Verbosity
from lakelog.cli.positions import iso_utc
from lakelog.cli.render import note, printable

app = Noun("debug")

_DEFAULT_HTTP = "127.0.0.1:9404"
_CONNECT_TIMEOUT_S = 10.0
_HINT = "start the broker with --http HOST:PORT, and pass the same address here or in LAKELOG_HTTP"


@app.command(
    tail="Wait for requests and show each; required.",
    limit=Argument("Stop after this number of requests.", "-n"),
    api="Show only requests of this API: Produce, Fetch, Metadata, ...",
    client="Show only requests of clients with this client id.",
    http=Argument(
        "HOST:PORT of the broker's HTTP endpoint on this host (LAKELOG_HTTP; default "
        "127.0.0.1:9404).",
        metavar="HOST:PORT",
    ),
)
def requests(
    *,
    tail: bool = False,
    limit: int | None = None,
    api: str = "",
    client: str = "",
    http: str | None = None,
    verbosity: Verbosity,
    output: Output,
) -> None:
    """Show requests when the broker answers them, until ^C."""
    if not tail:
        raise CliError(
            "LL0902",
            "past requests are not stored",
            "pass --tail to show requests as they are answered",
        )
    if limit is not None and limit < 1:
        raise CliError("LL0902", f"--limit {limit} must be at least 1")
    address = os.environ.get("LAKELOG_HTTP", _DEFAULT_HTTP) if http is None else http
    shown = 0
    for request in _requests(address, api, client):
        if "missed" in request:
            missed = f"{request['missed']} requests not shown: too many at once"
            note(missed, quiet=verbosity.quiet)
            continue
        sys.stdout.write(_line(request, output.format) + "\n")
        sys.stdout.flush()
        shown += 1
        if shown == limit:
            return


def _line(request: Mapping[str, Any], form: str) -> str:
    if form != "table":
        return json.dumps(request)
    return (
        f"{iso_utc(request['time_ms'])}  {request['duration_s'] * 1000:9.3f} ms  "
        f"{request['size_bytes']:>9} B  {request['api']} v{request['version']}  "
        f"{printable(request['client_id']) or '-'}  {request['peer']}"
    )


def _requests(http_address: str, api: str, client: str) -> Iterator[dict[str, Any]]:
    import http.client

    host, _, port = http_address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise CliError("LL0902", f"--http {http_address} is not HOST:PORT")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_CONNECT_TIMEOUT_S)
    try:
        connection.connect()
        sock = connection.sock
        connection.request("GET", "/debug/requests?" + urlencode({"api": api, "client": client}))
        answer = connection.getresponse()
        if answer.status != 200:
            text = answer.read(1000).decode(errors="replace").strip()
            raise CliError("LL0902", f"{http_address} rejects the request: {printable(text)}")
        sock.settimeout(None)  # requests may come at any time, so there is no further limit
        yield from _parsed(answer)
    except TimeoutError as error:
        text = f"{http_address}: no answer within {_CONNECT_TIMEOUT_S:g} s"
        raise CliError("LL0302", text, _HINT) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError("LL0301", f"no HTTP endpoint at {http_address}: {reason}", _HINT) from error
    finally:
        connection.close()


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        request = json.loads(line)
        if "watching" not in request:
            yield request
