from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.table import ensure_table


def test_an_address_loads_the_present_version(address: TableAddress) -> None:
    with address.load().transaction() as transaction:
        transaction.set_properties({"owner": "a job"})
    assert address.load().properties["owner"] == "a job"


def test_a_dropped_table_is_reported_with_its_name(address: TableAddress) -> None:
    open_catalog(address.catalog).drop_table(address.identifier)
    for each in (address, replace(address, uuid="")):
        with pytest.raises(
            TableReplacedError, match=r"the table lakelog\.orders was dropped while"
        ):
            each.load()


def test_a_table_that_was_created_again_is_loaded_only_without_a_uuid(
    address: TableAddress,
) -> None:
    open_catalog(address.catalog).drop_table(address.identifier)
    created = str(ensure_table(replace(address, uuid="")).metadata.table_uuid)

    with pytest.raises(TableReplacedError, match=f"UUID is {created}, not {address.uuid}"):
        address.load()
    assert str(replace(address, uuid="").load().metadata.table_uuid) == created
