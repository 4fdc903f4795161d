"""Partition specs of tables, from terms and back. Importing this module imports PyIceberg."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform, parse_transform

from lakelog.tables.iceberg.partition_terms import IDENTITY, PartitionTerm, parse_terms

_FIRST_ID = 1000
"""Iceberg spec, "Partition Evolution": ids of partition fields begin at 1000."""


def spec_of(terms: Sequence[PartitionTerm], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table."""
    return PartitionSpec(
        *(
            PartitionField(
                source_id=schema.find_field(term.column).field_id,
                field_id=_FIRST_ID + number,
                transform=parse_transform(term.transform),
                name=term.column
                if term.transform == IDENTITY
                else f"{term.column}_{term.transform}",
            )
            for number, term in enumerate(terms)
        )
    )


def terms_of(table: Table) -> tuple[PartitionTerm, ...]:
    """Return the terms of a table's partition spec.

    Raises `ValueError` if the archive cannot write files for the spec.
    """
    try:
        return parse_terms(map(str, _terms(table)))
    except ValueError:
        raise ValueError(
            f"the table {'.'.join(table.name())} is partitioned by {spec_text(table)}, which an "
            "archive does not support: archive into a table of another name"
        ) from None


def spec_text(table: Table) -> str:
    """Return the terms of a table's partition spec as text, supported or not."""
    return ",".join(map(str, _terms(table)))


def _terms(table: Table) -> list[PartitionTerm]:
    columns = table.schema()
    return [
        PartitionTerm(str(field.transform), columns.find_column_name(field.source_id) or "")
        for field in table.spec().fields
        if not isinstance(field.transform, VoidTransform)
    ]
