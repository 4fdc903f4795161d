from __future__ import annotations

import json
import socket
from pathlib import Path
from uuid import UUID

import pytest

from lakelog.tables.registry.client import (
    BODY_BYTES_MAX,
    USER_INFO,
    VALUE_HEADER,
    Reference,
    Registered,
    RegistryAccessError,
    RegistryAddress,
    RegistryClient,
    RegistryUnavailableError,
    SchemaMissingError,
    UnreadableValueError,
    check_url,
    header_in,
    split,
)
from schema_registry import Registry, schema_registry
from secured_ensemble import Certificates


def client(registry: Registry, user_info: str = "", give_up_s: float = 30) -> RegistryClient:
    return RegistryClient(RegistryAddress(registry.url + "/", user_info), give_up_s=give_up_s)


def test_schemas_are_found_by_id_guid_and_subject(registry: Registry) -> None:
    first = registry.register("orders-value", '"long"')
    references = [{"name": "a", "subject": "orders-value", "version": 1}]
    second = registry.register("orders-value", '"string"', "JSON", references)
    asked = client(registry)

    assert asked.schema(first) == Registered('"long"', "AVRO", ())
    newest = Registered('"string"', "JSON", (Reference("a", "orders-value", 1),))
    assert asked.schema(registry.guid(second)) == newest
    assert asked.newest("orders-value") == 2
    assert asked.version("orders-value", 2) == newest
    assert asked.version("orders-value", 1).text == '"long"'


def test_a_subject_is_quoted(registry: Registry) -> None:
    registry.register("a/b ü", '"long"')
    assert client(registry).version("a/b ü", 1).text == '"long"'


def test_unknown_ids_and_subjects_are_named(registry: Registry) -> None:
    registry.register("orders-value", '"long"')
    asked = client(registry)
    with pytest.raises(SchemaMissingError, match=r"does not have the schema id 7: Schema not"):
        asked.schema(7)
    with pytest.raises(SchemaMissingError, match="version latest of the subject 'x': Subject not"):
        asked.newest("x")
    assert len(registry.requests) == 2, "another attempt would not help"


def test_credentials_are_sent_and_their_refusal_says_where_to_set_them(registry: Registry) -> None:
    registry.register("orders-value", '"long"')
    registry.user_info = "reader:sécret"
    assert client(registry, "reader:sécret").schema(1).text == '"long"'
    with pytest.raises(
        RegistryAccessError, match=f"requires credentials .*401: Unauthorized.*{USER_INFO}="
    ):
        client(registry).schema(1)
    with pytest.raises(RegistryAccessError, match="rejects the credentials"):
        client(registry, "reader:wrong").schema(1)


def test_an_overloaded_registry_is_asked_again(registry: Registry) -> None:
    registry.register("orders-value", '"long"')
    registry.replies = [(503, b""), (429, b"{}"), (500, b"oops")]
    assert client(registry).schema(1).text == '"long"'
    assert len(registry.requests) == 4


def test_a_registry_that_does_not_come_back_is_an_error(registry: Registry) -> None:
    registry.replies = [(503, b'{"message": "maintenance"}')] * 100
    with pytest.raises(RegistryUnavailableError, match="returned HTTP status 503: maintenance"):
        client(registry, give_up_s=0.2).schema(1)
    assert len(registry.requests) > 1


def test_a_registry_that_is_down_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = RegistryAddress(f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(RegistryUnavailableError, match=r"127.0.0.1:\d+ does not answer: .*refused"):
        RegistryClient(address, give_up_s=0.1).schema(1)


def test_a_registry_with_tls_needs_a_trusted_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    with schema_registry(certificates.issue("registry", "IP:127.0.0.1")) as registry:
        registry.register("orders-value", '"long"')
        with pytest.raises(RegistryAccessError, match=r"is not trusted: .*Set SSL_CERT_FILE"):
            client(registry).schema(1)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
        assert client(registry).schema(1).text == '"long"'


@pytest.mark.parametrize(
    "reply",
    [
        (404, b"<html>not here</html>"),
        (302, b""),
        (200, b"hello"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"schema": "x", "references": [1]}'),
        (200, b"[" * 100_000),
    ],
)
def test_a_server_that_is_no_registry_is_named(
    registry: Registry, reply: tuple[int, bytes]
) -> None:
    registry.replies = [reply]
    with pytest.raises(RegistryAccessError, match="is not the API of a schema registry"):
        client(registry).schema(1)
    registry.replies = [reply]
    with pytest.raises(RegistryAccessError, match="is not the API of a schema registry"):
        client(registry).newest("t")


def test_a_large_response_is_not_read(registry: Registry) -> None:
    registry.replies = [(200, json.dumps({"schema": "x" * BODY_BYTES_MAX}).encode())]
    with pytest.raises(RegistryAccessError, match=f"exceeds {BODY_BYTES_MAX} bytes"):
        client(registry).schema(1)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "registry:8081",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://h/?x",
        "http://h#f",
        "http://h/a b",
        "http://h/\u00fc",
        "http://h/a\n",
    ],
)
def test_an_unusable_url_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a schema registry: expected http"):
        check_url(url)


def test_credentials_are_in_the_environment_not_in_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=f"contains credentials.*set {USER_INFO}=user:password"):
        check_url("https://user:secret@host")
    monkeypatch.setenv(USER_INFO, "user:secret")
    address = RegistryAddress.from_environment("https://host/path")
    assert address.user_info == "user:secret"
    assert "secret" not in repr(address)


GUID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def test_an_id_or_a_guid_is_before_the_data() -> None:
    assert split(b"\0\0\0\1\7rest") == (263, b"rest")
    assert split(b"\0\0\0\0\7") == (7, b"")
    assert split(b"\1" + GUID.bytes + b"rest") == (GUID, b"rest")


def test_the_header_takes_precedence_and_the_data_is_whole() -> None:
    assert split(b"\0\0\0\0\1", b"\0\0\0\0\2") == (2, b"\0\0\0\0\1")
    assert split(b"", b"\1" + GUID.bytes) == (GUID, b"")


@pytest.mark.parametrize(
    ("data", "header", "reason"),
    [
        (b"", None, "the value is empty, not with a schema id"),
        (b"{}", None, "the value begins with byte 123, not with a schema id"),
        (b"\0\0\0", None, "the value ends within the schema id"),
        (b"\1" + b"x" * 15, None, "the value ends within the schema id"),
        (b"\0\0\0\0\1", b"", "the header with the schema id is empty"),
        (b"", b"\0\0\0\0\1x", "has bytes after the id"),
    ],
)
def test_data_without_an_id_is_an_error(data: bytes, header: bytes | None, reason: str) -> None:
    with pytest.raises(UnreadableValueError, match=reason):
        split(data, header)


def test_the_last_header_of_the_name_counts() -> None:
    rows = [
        {"key": VALUE_HEADER, "value": b"a"},
        {"key": "other", "value": b"b"},
        {"key": VALUE_HEADER, "value": bytearray(b"c")},
    ]
    assert header_in(rows, VALUE_HEADER) == b"c"
    assert header_in(rows[1:2], VALUE_HEADER) is None
    assert header_in(None, VALUE_HEADER) is None
    assert header_in([{"key": VALUE_HEADER, "value": None}], VALUE_HEADER) == b""
