"""The stream's query: parses access-log lines into JSON, and keeps malformed lines unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what PySpark's users write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COMBINED = (
    r'(?s)^(\S+) (\S+) (\S+) \[([^\]]+)\] "(\S+) (\S+) (\S+)" (\d{3}) (\d+|-) "(.*)" "(.*)"\r?$'
)
"""The combined log format of Apache and nginx."""

REQUEST = (
    "client string, user string, time timestamp, method string, path string, protocol string, "
    "status int, bytes bigint, referrer string, agent string"
)


def parse_requests(lines: DataFrame) -> DataFrame:
    """Return rows for the sink: a request as JSON, or the bytes of a malformed line.

    The header `parsed` distinguishes the two. A row goes to the partition of its line, so both
    topics have the same order. The query uses only `try_` functions, because lines that are not
    UTF-8 or have an impossible date are data too.
    """
    text = F.try_validate_utf8(F.col("value").cast("string"))
    request = F.struct(
        _group(text, 1).alias("client"),
        _group(text, 3).alias("user"),
        F.try_to_timestamp(_group(text, 4), F.lit("dd/MMM/yyyy:HH:mm:ss Z")).alias("time"),
        _group(text, 5).alias("method"),
        _group(text, 6).alias("path"),
        _group(text, 7).alias("protocol"),
        _group(text, 8).try_cast("int").alias("status"),
        _group(text, 9).try_cast("bigint").alias("bytes"),
        _group(text, 10).alias("referrer"),
        _group(text, 11).alias("agent"),
    )
    parsed = lines.withColumn("request", request)
    is_request = F.col("request.time").isNotNull()
    value = F.when(is_request, F.to_json("request").cast("binary")).otherwise(F.col("value"))
    flag = F.when(is_request, F.lit("true")).otherwise(F.lit("false")).cast("binary")
    header = F.struct(F.lit("parsed").alias("key"), flag.alias("value"))
    return parsed.select("key", value.alias("value"), "partition", F.array(header).alias("headers"))


def read_requests(records: DataFrame) -> DataFrame:
    """Return the records of the second topic with the fields of the requests."""
    is_request = F.col("headers")[0]["value"].cast("string") == "true"
    request = F.when(is_request, F.from_json(F.col("value").cast("string"), REQUEST))
    return records.select(request.alias("request"), is_request.alias("parsed"))


def _group(text: Column, number: int) -> Column:
    return F.regexp_extract(text, COMBINED, number)
