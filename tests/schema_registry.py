"""A schema registry in this process: the part of Confluent's REST API that clients of schemas use.

confluent-kafka's own client registers schemas here, and its serializers write the values.
"""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid5

_NAMESPACE = UUID(int=0)


class Registry:
    """The schemas of the server, and the requests that it got.

    user_info: the credentials that it wants, if any. replies: statuses and bodies for the next
    requests, before it works again.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.user_info = ""
        self.replies: list[tuple[int, bytes]] = []
        self.url = ""

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Any = None
    ) -> int:
        """Add a schema as a version of a subject; return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry = {"schema": text, "schemaType": kind, "references": references or []}
        if entry not in self.schemas:
            self.schemas.append(entry)
        number = self.schemas.index(entry) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def guid(self, number: int) -> UUID:
        return uuid5(_NAMESPACE, json.dumps(self.schemas[number - 1]))

    def get(self, parts: list[str]) -> tuple[int, Any]:
        match parts:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self._schema(int(number))
            case ["schemas", "guids", guid]:
                for at in range(1, len(self.schemas) + 1):
                    if str(self.guid(at)) == guid:
                        return 200, self._schema(at)
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                numbers = self.subjects[subject]
                at = len(numbers) if version == "latest" else int(version)
                if 0 < at <= len(numbers):
                    found = {"subject": subject, "version": at, "id": numbers[at - 1]}
                    return 200, self._schema(numbers[at - 1]) | found
                return 404, {"error_code": 40402, "message": "Version not found."}
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found."}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def post(self, parts: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        kind = body.get("schemaType") or "AVRO"
        number = self.register(parts[1], body["schema"], kind, body.get("references"))
        versions = self.subjects[parts[1]]
        found = {"id": number, "version": versions.index(number) + 1, "subject": parts[1]}
        return 200, self._schema(number) | found

    def _schema(self, number: int) -> dict[str, Any]:
        entry = {k: v for k, v in self.schemas[number - 1].items() if v and v != "AVRO"}
        return entry | {"guid": str(self.guid(number))}


@contextmanager
def schema_registry(certificate: Path | None = None) -> Iterator[Registry]:
    """Run a registry on a free port of this host, with TLS if it has a certificate."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(lambda parts: registry.get(parts))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(lambda parts: registry.post(parts, body))

        def _answer(self, serve: Any) -> None:
            path = urlsplit(self.path).path
            registry.requests.append(path)
            wanted = f"Basic {b64encode(registry.user_info.encode()).decode()}"
            if registry.replies:
                status, raw = registry.replies.pop(0)
            elif registry.user_info and self.headers.get("Authorization") != wanted:
                status, raw = 401, b'{"error_code": 401, "message": "Unauthorized"}'
            else:
                status, found = serve([unquote(part) for part in path.split("/")[1:]])
                raw = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        registry.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
