"""Errors for users: a line with a code, a line with a hint, and an exit status."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TextIO

from lakelog.base.errors import AddressError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakelog.cli.catalog import Entry


class CliError(Exception):
    """An error that ends the command. `code` is one of `catalog.py`."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    @property
    def entry(self) -> Entry:
        from lakelog.cli.catalog import CATALOG

        return CATALOG[self.code]


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return a hint with the most similar known name, or an empty text."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else ""


def explain_exception(error: BaseException) -> CliError:
    """Return the error to report for any exception of a command."""
    if isinstance(error, CliError):
        return error
    if isinstance(error, KafkaError):
        return _from_kafka(error)
    if isinstance(error, AddressError):
        return CliError("LL0902", f"brokers: {error}", "for example -b 127.0.0.1:9092")
    if isinstance(error, UnicodeEncodeError):
        return CliError("LL0902", f"'{error.object}' is not UTF-8", "names are UTF-8 text")
    if isinstance(error.__cause__, UnicodeEncodeError):
        return explain_exception(error.__cause__)
    if isinstance(error, TimeoutError):
        return CliError("LL0302", str(error) or "no answer in time", _after_waiting(error))
    if isinstance(error, ConnectionError):
        return CliError("LL0301", _reason(error), "is the broker running? lakelog dev starts one")
    if isinstance(error, OSError):
        return _from_os(error)
    return _from_fault(error)


def _after_waiting(error: TimeoutError) -> str:
    """Return the hint: a longer time does not help if the broker has named another cause."""
    cause = error.__cause__
    if isinstance(cause, KafkaError) and cause.code is not ErrorCode.REQUEST_TIMED_OUT:
        return _from_kafka(cause).hint
    return "raise --timeout"


def _from_fault(error: BaseException) -> CliError:
    from lakelog.wire.primitives import WireError

    if isinstance(error, WireError):  # errors of decoding are ProtocolErrors already
        return CliError("LL0902", f"an argument is too large for a request: {error}")
    return CliError("LL0999", f"{type(error).__name__}: {error}", "repeat with --debug")


def _from_kafka(error: KafkaError) -> CliError:
    from lakelog.cli.catalog import BY_KAFKA
    from lakelog.client.errors import ClientError, PartitionNotFoundError, ProtocolError

    advice = error.hint if isinstance(error, ClientError) else ""
    hint = advice[:1].lower() + advice[1:]
    if isinstance(error, PartitionNotFoundError):
        return CliError("LL0104", error.message, hint)
    if isinstance(error, ProtocolError):
        return CliError("LL0303", error.message, hint)
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return CliError("LL0302", error.message or "no answer in time", hint or "raise --timeout")
    if error.code is ErrorCode.NON_EMPTY_GROUP:
        hint = hint or "stop its consumers first; a killed one leaves after its session timeout"
    entry = BY_KAFKA.get(error.code)
    if entry is None:
        return CliError("LL0100", str(error), hint)
    return CliError(entry.code, error.message or entry.title, hint)


def _from_os(error: OSError) -> CliError:
    named = f"{error.filename}: {error.strerror}" if error.filename else _reason(error)
    if error.errno == errno.EBADF:
        return CliError("LL0903", f"standard input: {named}")
    if error.errno == errno.EISDIR:
        return CliError("LL0902", named, "name a file")
    is_denied = error.errno == errno.EACCES and bool(error.filename)
    if error.errno in (errno.ENOENT, errno.ENOTDIR) or is_denied:
        return CliError("LL0903", named)
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return CliError("LL0301", named)
    return CliError("LL0999", named)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def report(error: CliError, stream: TextIO, *, color: bool) -> None:
    """Write `error[CODE] message` and a hint; a byte that is not UTF-8 appears as `\\xff`."""
    label = f"error[{error.code}]"
    if color:
        label = f"\x1b[1;31m{label}\x1b[0m"
    hint = error.hint or f"lakelog explain {error.code}"
    text = f"{label} {error.message}\nhint: {hint}\n"
    stream.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
