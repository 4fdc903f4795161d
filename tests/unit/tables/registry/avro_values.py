"""Avro values by the Apache implementation, which shares no code with the one under test."""

from __future__ import annotations

import io
import json
from typing import Any

import avro.io
import avro.schema


def encoded(schema: Any, value: Any) -> bytes:
    """Return the bytes of a value."""
    out = io.BytesIO()
    writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema)))
    writer.write(value, avro.io.BinaryEncoder(out))
    return out.getvalue()


def record(*fields: Any, name: str = "Row") -> dict[str, Any]:
    """Return the schema of a record with fields of these types: f0, f1, ..."""
    named = [{"name": f"f{number}", "type": each} for number, each in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}
