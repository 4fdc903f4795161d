"""Values that a schema registry describes, as typed columns of a DataFrame.

The newest version of a subject has the columns when the query is defined. Each value is decoded
with its own schema: earlier and later versions share the columns, and parts without a column are
rescued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.tables.iceberg.columns import DATA, RESCUED
from lakelog.tables.registry.client import KEY_HEADER, VALUE_HEADER, RegistryAddress
from lakelog.tables.registry.schemas import RegistryFitter, SubjectVersion, schemas_of
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.typed.shapes import extended, with_leaves

if TYPE_CHECKING:
    from pyspark.sql import Column

PLACE = ("topic", "partition", "offset")
MODES = ("FAILFAST", "PERMISSIVE")
_HINT = 'With mode="PERMISSIVE" such a record has a null `data`, and `rescued` has the reason'


def from_registry(
    value: Column | str,
    url: str,
    *,
    subject: str,
    headers: Column | str | None = None,
    place: Sequence[Column | str] = PLACE,
    is_key: bool = False,
    has_ids: bool = True,
    mode: str = "FAILFAST",
    user_info: str | None = None,
) -> Column:
    """Return a struct with `data`, the typed fields of a value, and `rescued`, the rest as JSON.

    value: a binary column with Avro, or with JSON that has a JSON Schema. url, user_info: of the
    registry, and `user:password` for it; by default LAKELOG_SCHEMA_REGISTRY_USER_INFO in the
    environment of the driver. subject: its newest version has the fields, such as `orders-value`.
    headers: the column `headers`, if the ids of schemas are there. place: the columns for topic,
    partition and offset, which errors name; empty if there are none. is_key: the values are keys,
    with ids in the header `__key_schema_id`. has_ids: false if values do not begin with the id of
    their schema: they are of the newest version, unless a header has an id. mode: FAILFAST, so
    that a value that cannot be read is an error, or PERMISSIVE.

    Raises `OptionError`, `ValueError` for an unusable URL, `SchemaMissingError` for an unknown
    subject, `UnsupportedSchemaError`, `RegistryUnavailableError` and `RegistryAccessError`. The
    query fails with `BadRecordError` for a value that cannot be read.
    """
    if mode not in MODES:
        raise OptionError(f"mode is {mode!r}: expected one of {', '.join(MODES)}")
    if len(place) not in (0, len(PLACE)):
        raise OptionError("place has to be the columns for topic, partition and offset, or empty")
    address = (
        RegistryAddress.from_environment(url)
        if user_info is None
        else RegistryAddress(url, user_info)
    )
    schemas = schemas_of(address)
    newest = schemas.newest(subject)
    data = without_fixed(extended(pa.struct([]), schemas.get(newest).shape))
    if not len(data):
        raise OptionError(f"the schema of the subject {subject!r} has no fields: expected a record")
    columns = {"value": value, **dict(zip(PLACE, place, strict=False))}
    if headers is not None:
        columns["headers"] = headers
    header = KEY_HEADER if is_key else VALUE_HEADER
    decoder = Decoder(
        address,
        data,
        tuple(columns),
        header,
        is_strict=mode == "FAILFAST",
        without_ids=None if has_ids else newest,
    )

    # Spark recognises the kind of function by its type hints, which an instance does not have.
    def from_registry(*columns: pa.Array) -> pa.Array:
        return decoder(*columns)

    return functions.arrow_udf(from_registry, decoder.spark_type)(*columns.values())


class Decoder:
    """Decodes batches of values in Spark's workers.

    names: of the columns in a batch: `value`, perhaps `topic`, `partition`, `offset` and `headers`.
    header: the name of the header with the schema id. without_ids: the schema of values without.
    """

    def __init__(
        self,
        address: RegistryAddress,
        data: pa.StructType,
        names: tuple[str, ...],
        header: str,
        *,
        is_strict: bool,
        without_ids: SubjectVersion | None = None,
    ) -> None:
        self._address = address
        self._data = data
        self._names = names
        self._header = header
        self._is_strict = is_strict
        self._without_ids = without_ids
        rescued = StructField(RESCUED, StringType())
        self.spark_type = StructType([StructField(DATA, from_arrow_type(data)), rescued])

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """Return structs of `data` and `rescued`. Raises as `RegistryFitter.fit`."""
        fitter = RegistryFitter(
            schemas_of(self._address),
            self._data,
            is_strict=self._is_strict,
            header=self._header,
            hint=_HINT,
            without_ids=self._without_ids,
        )
        batch = pa.RecordBatch.from_arrays(list(columns), list(self._names))
        decoded = pa.StructArray.from_arrays(fitter.fit(batch), [DATA, RESCUED])
        # Spark's types have 32-bit offsets.
        return decoded.cast(to_arrow_type(self.spark_type, timezone="UTC"))


def without_fixed(type_: pa.DataType) -> pa.DataType:
    """Return the type with binary for fixed lengths, which Spark does not have."""
    fixed = pa.types.is_fixed_size_binary
    return with_leaves(type_, lambda leaf: pa.large_binary() if fixed(leaf) else leaf)
