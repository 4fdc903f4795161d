"""Finds the id of a value's schema, and asks a schema registry for it with Confluent's REST API.

Serializers put the id before the data (byte 0 and the id in four bytes, or byte 1 and a GUID in 16
bytes), or in the same form into a record header, and then the data has no prefix. Each request has
a connection of its own: schemas never change, so requests are rare.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit
from uuid import UUID

from lakelog.client.errors import log_retry, pauses


class RegistryUnavailableError(Exception):
    """The registry does not answer, or cannot serve requests now."""


class RegistryAccessError(Exception):
    """The registry rejects the credentials, or the URL is not that of a registry."""


class SchemaMissingError(Exception):
    """The registry has no schema with this id, or no such subject or version."""


class UnreadableValueError(Exception):
    """A value that its schema does not describe, or that names no schema."""


class UnsupportedSchemaError(UnreadableValueError):
    """A schema whose values cannot be columns; the text has the reason."""


SchemaId = int | UUID
VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"

_ID, _GUID = 0, 1
_ID_END, _GUID_END = 5, 17


def split(data: bytes, header: bytes | None = None) -> tuple[SchemaId, bytes]:
    """Return the id of the schema and the data without it.

    header: the value of the header with the id, if the record has one; it takes precedence.
    Raises `UnreadableValueError`.
    """
    if header is None:
        schema_id, end = _read(data, "the value")
        return schema_id, data[end:]
    schema_id, end = _read(header, "the header with the schema id")
    if end != len(header):
        raise UnreadableValueError("the header with the schema id has bytes after the id")
    return schema_id, data


def header_in(headers: list[dict[str, Any]] | None, name: str) -> bytes | None:
    """Return the value of the last header of this name, as Kafka's `lastHeader`; `None` without.

    headers: of one record, as rows of Arrow or Spark: with the fields `key` and `value`.
    """
    values = [header["value"] for header in headers or () if header["key"] == name]
    return bytes(values[-1] or b"") if values else None


def _read(data: bytes, what: str) -> tuple[SchemaId, int]:
    """Return the id at the start of `data`, and where it ends."""
    first = data[0] if data else None
    if first == _ID and len(data) >= _ID_END:
        return int.from_bytes(data[1:_ID_END], "big"), _ID_END
    if first == _GUID and len(data) >= _GUID_END:
        return UUID(bytes=bytes(data[1:_GUID_END])), _GUID_END
    if first in (_ID, _GUID):
        raise UnreadableValueError(f"{what} ends within the schema id")
    begins = f"begins with byte {first}" if data else "is empty"
    raise UnreadableValueError(
        f"{what} {begins}, not with a schema id (byte 0 and 4 bytes, or byte 1 and a GUID)"
    )


USER_INFO = "LAKELOG_SCHEMA_REGISTRY_USER_INFO"
"""The environment variable with `user:password`."""
BODY_BYTES_MAX = 4 << 20
_REQUEST_S = 10.0
_GIVE_UP_S = 30.0
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The URL of a registry, and the credentials for basic authentication (`user:password`)."""

    url: str
    user_info: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_url(self.url)

    @classmethod
    def from_environment(cls, url: str) -> RegistryAddress:
        """Return the address with the credentials in the environment. Raises `ValueError`."""
        return cls(url, os.environ.get(USER_INFO, ""))


def check_url(url: str) -> SplitResult:
    """Return the parts of a registry's URL. Raises `ValueError`."""
    expected = "expected http://HOST:PORT or https://HOST:PORT, optionally with a path"
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number of a port
        raise ValueError(f"{url!r} is not the URL of a schema registry: {expected}") from None
    if "@" in parts.netloc:
        raise ValueError(
            "the URL of the schema registry contains credentials, which plans and logs would show: "
            f"set {USER_INFO}=user:password in the environment instead"
        )
    # The HTTP client would reject such a path in each request only.
    is_plain = url.isprintable() and " " not in url and parts.path.isascii()
    if not is_usable or not is_plain or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not the URL of a schema registry: {expected}")
    return parts


class Reference(NamedTuple):
    """A schema that another one refers to by `name`."""

    name: str
    subject: str
    version: int


class Registered(NamedTuple):
    """A schema as the registry returns it. kind: AVRO, JSON or PROTOBUF."""

    text: str
    kind: str
    references: tuple[Reference, ...]


class RegistryClient:
    """A client of one registry.

    Methods retry for up to 30 seconds while the registry does not answer or returns a server
    error. They raise `RegistryUnavailableError` after that, `RegistryAccessError` if the
    registry rejects the credentials, and `SchemaMissingError`.
    """

    def __init__(self, address: RegistryAddress, *, give_up_s: float = _GIVE_UP_S) -> None:
        self.url = address.url.rstrip("/")
        self._parts = check_url(self.url)
        self._headers = {"Accept": _ACCEPT}
        self._give_up_s = give_up_s
        if address.user_info:
            token = b64encode(address.user_info.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def schema(self, schema_id: SchemaId) -> Registered:
        """Return the schema with this id or GUID."""
        where = "ids" if isinstance(schema_id, int) else "guids"
        return self._registered(f"/schemas/{where}/{schema_id}", f"the schema id {schema_id}")

    def version(self, subject: str, version: int) -> Registered:
        """Return the schema of a subject's version."""
        return self._registered(_version_path(subject, version), _version_name(subject, version))

    def newest(self, subject: str) -> int:
        """Return the number of a subject's newest version."""
        path = _version_path(subject, "latest")
        try:
            return int(self._get(path, _version_name(subject, "latest"))["version"])
        except (KeyError, TypeError, ValueError):
            raise self._no_registry(path) from None

    def _registered(self, path: str, what: str) -> Registered:
        answer = self._get(path, what)
        try:
            references = tuple(
                Reference(str(entry["name"]), str(entry["subject"]), int(entry["version"]))
                for entry in answer.get("references") or ()
            )
            kind = answer.get("schemaType") or "AVRO"
            return Registered(str(answer["schema"]), str(kind), references)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._no_registry(path) from None

    def _get(self, path: str, what: str) -> Any:
        deadline = time.monotonic() + self._give_up_s
        for pause in pauses():
            try:
                status, body = self._request(path)
                if status < 500 and status != 429:
                    return self._judged(status, body, path, what)
                error: Exception = RegistryUnavailableError(
                    f"the schema registry {self.url} returned HTTP status {status}{_message(body)}"
                )
            except ssl.SSLCertVerificationError as refused:
                raise RegistryAccessError(
                    f"the certificate of the schema registry {self.url} is not trusted: {refused}. "
                    "Set SSL_CERT_FILE to the certificate file of its authority"
                ) from refused
            except (OSError, HTTPException) as lost:
                error = RegistryUnavailableError(
                    f"the schema registry {self.url} does not answer: {lost or type(lost).__name__}"
                )
            if time.monotonic() + pause >= deadline:
                raise error
            log_retry(error, pause)
            time.sleep(pause)
        raise AssertionError("pauses are endless")

    def _request(self, path: str) -> tuple[int, bytes]:
        host, port = self._parts.hostname, self._parts.port
        assert host is not None, "checked in check_url"
        connection: HTTPConnection
        if self._parts.scheme == "https":
            trust = ssl.create_default_context()
            connection = HTTPSConnection(host, port, timeout=_REQUEST_S, context=trust)
        else:
            connection = HTTPConnection(host, port, timeout=_REQUEST_S)
        try:
            connection.request("GET", self._parts.path + path, headers=self._headers)
            response = connection.getresponse()
            # The header may claim any length: `read` allocates no more than its argument.
            body = response.read(BODY_BYTES_MAX + 1)
        finally:
            connection.close()
        if len(body) > BODY_BYTES_MAX:
            raise RegistryAccessError(
                f"the response of {self.url}{path} exceeds {BODY_BYTES_MAX} bytes"
            )
        return response.status, body

    def _judged(self, status: int, body: bytes, path: str, what: str) -> Any:
        """Return the body of a success; raise the error of any other status."""
        if status in (401, 403):
            reason = "rejects the" if "Authorization" in self._headers else "requires"
            raise RegistryAccessError(
                f"the schema registry {self.url} {reason} credentials (HTTP status {status}"
                f"{_message(body)}): set {USER_INFO}=user:password in the environment"
            )
        answer = _parsed(body)
        if status == 404 and isinstance(answer, Mapping) and "error_code" in answer:
            raise SchemaMissingError(
                f"the schema registry {self.url} does not have {what}{_message(body)}"
            )
        if status != 200 or not isinstance(answer, Mapping):
            raise self._no_registry(path, f" (HTTP status {status}{_message(body)})")
        return answer

    def _no_registry(self, path: str, detail: str = "") -> RegistryAccessError:
        return RegistryAccessError(
            f"{self.url}{path} is not the API of a schema registry{detail}: check the URL"
        )


def _version_path(subject: str, version: int | str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}"


def _version_name(subject: str, version: int | str) -> str:
    return f"version {version} of the subject {subject!r}"


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _message(body: bytes) -> str:
    """Return the registry's own text, if there is one."""
    answer = _parsed(body)
    text = answer.get("message") if isinstance(answer, Mapping) else None
    return f": {text[:200]}" if isinstance(text, str) else ""
