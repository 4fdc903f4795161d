"""The cause of a failed streaming query, as one line.

An error of Python arrives in Spark's text with its class and its message. If a Python process of
the query dies, Spark knows only that a pipe was closed, and for the planning process its text is
empty. The process then follows from Java's stack trace. How it died is known to the daemon of
PySpark alone, which drops the status.
"""

from __future__ import annotations

import re

from pyspark.errors import StreamingQueryException

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+(?:Error|Exception))\b", re.M)
_MESSAGE = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_TASK_MESSAGE = re.compile(r"most recent failure: (.+)")
_PROCESSES = {
    "PythonStreamingSourceRunner": "the Python process that plans batches",
    "PythonStreamingSinkCommitRunner": "the Python process that commits batches",
}
"""By the class of Java that talks to the process."""
_CLOSED = ("EOFException", "SocketException", "ClosedChannelException")


def reason_of(error: StreamingQueryException) -> str:
    """Return the last Python error as `ClassName: message`, or else Spark's cause.

    Names the process that died, and the class of an error without a message.
    """
    text = str(error)
    python = _PYTHON_ERROR.findall(text)
    if python:
        return str(python[-1])
    trace = _trace(error)
    causes = _JAVA_ERROR.findall(trace)
    name = causes[-1] if causes else "an error without a message"
    process = next((_PROCESSES[each] for each in _PROCESSES if each in trace), None)
    if process is not None and name in _CLOSED:
        return (
            f"{process} ended unexpectedly ({name}): it was killed, perhaps because memory ran "
            "out, or it crashed"
        )
    return _message(text) or f"Spark's query failed with {name}"


def _trace(error: StreamingQueryException) -> str:
    """Return Java's stack trace; empty over Spark Connect, which does not send it."""
    cause = getattr(error, "_cause", None)  # PySpark has no public name for it
    return str(getattr(cause, "_stackTrace", None) or "")


def _message(text: str) -> str:
    """Return the first line of the cause, without the words that are the same for all causes."""
    found = _MESSAGE.search(text)
    message = found[1] if found else text.strip().partition("\n")[0]
    task = _TASK_MESSAGE.search(message)
    return (task[1] if task else message).strip()
