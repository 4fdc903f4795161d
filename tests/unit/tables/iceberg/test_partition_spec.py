from __future__ import annotations

import pytest
from pyiceberg.transforms import BucketTransform, VoidTransform

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.partition_spec import spec_of, spec_text, terms_of
from lakelog.tables.iceberg.partition_terms import parse_terms
from lakelog.tables.iceberg.table import SCHEMA


def test_a_spec_has_a_field_for_each_term() -> None:
    spec = spec_of(parse_terms(["hour(timestamp)", "timestampType"]), SCHEMA)
    assert [(each.source_id, each.name, str(each.transform)) for each in spec.fields] == [
        (4, "timestamp_hour", "hour"),
        (5, "timestampType", "identity"),
    ]
    assert spec_of((), SCHEMA).is_unpartitioned()


def test_the_terms_of_a_table_follow_its_present_spec(address: TableAddress) -> None:
    assert terms_of(address.load()) == ()
    with address.load().update_spec() as update:
        update.add_identity("partition")
    with address.load().update_spec() as update:
        update.add_field("key", VoidTransform(), "nothing")
    assert terms_of(address.load()) == parse_terms(["partition"])
    with address.load().update_spec() as update:
        update.add_field("offset", BucketTransform(4))
    assert spec_text(address.load()) == "partition,bucket[4](offset)"
    with pytest.raises(ValueError, match="does not support"):
        terms_of(address.load())
