"""The generated source, and the sizes by which counts are checked before memory is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakelog.protocol.api import Api
from lakelog.protocol.registry import APIS
from lakelog.wire.compile import SHORT_ARRAY, Source, smallest_size, split_fields
from lakelog.wire.schema import Struct, array, int16, int32, string, struct
from lakelog.wire.shapes import Field


class Leaf(Struct):
    size: int = int32("1+")
    name: str = string()


class Tree(Struct):
    late: int = int16("1+", tag=3)
    early: int = int16("1+", tag=0)
    leaf: Leaf = struct(Leaf)
    twin: Leaf | None = struct(Leaf, "1+", nullable="1+", default=None)
    leaves: list[Leaf] = array(Leaf)


def fields_of(kind: type[Struct]) -> tuple[Field, ...]:
    return kind.__fields__


def named(fields: list[Field]) -> list[str]:
    return [field.name for field in fields]


def test_tagged_fields_are_encoded_last_and_in_the_order_of_their_tags() -> None:
    """KIP-482."""
    plain, tagged = split_fields(fields_of(Tree), 1, flexible=True)
    assert named(plain) == ["leaf", "twin", "leaves"]
    assert named(tagged) == ["early", "late"]


def test_a_field_with_a_tag_has_its_place_in_a_version_without_tags() -> None:
    plain, tagged = split_fields(fields_of(Tree), 1, flexible=False)
    assert named(plain) == ["late", "early", "leaf", "twin", "leaves"]
    assert not tagged


def test_fields_of_other_versions_are_left_out() -> None:
    plain, tagged = split_fields(fields_of(Tree), 0, flexible=True)
    assert (named(plain), named(tagged)) == (["leaf", "leaves"], [])


@pytest.mark.parametrize(
    ("version", "flexible", "size"),
    [
        (0, False, 2 + 4),  # the leaf's name and the count of leaves
        (0, True, (1 + 1) + 1 + 1),  # each struct ends with the number of its tags
        (1, False, 2 + 2 + (4 + 2) + 1 + 4),  # an absent struct takes one byte
        (1, True, (4 + 1 + 1) + 1 + 1 + 1),
    ],
)
def test_the_smallest_element_bounds_the_count_of_an_array(
    version: int, flexible: bool, size: int
) -> None:
    """A larger size would reject valid requests, a smaller one would allocate too much."""
    (element,) = fields_of(Forest)
    assert smallest_size(element, version, flexible) == size


class Forest(Struct):
    trees: list[Tree] = array(Tree)


def element_sizes(kind: Any, version: int, *, flexible: bool) -> Iterator[int]:
    for field in kind.__fields__:
        if field.is_array:
            yield smallest_size(field, version, flexible)
        if field.struct is not None:
            yield from element_sizes(field.struct, version, flexible=flexible)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_no_element_of_the_protocol_is_empty(api: Api) -> None:
    """A count of empty elements would not be bounded by the size of the request."""
    kind: Any = api.request
    for version in kind.__versions__:
        flexible = version in kind.__flexible__
        assert all(size >= 1 for size in element_sizes(kind, version, flexible=flexible))


def test_variables_of_nested_structs_have_different_names() -> None:
    source = Source()
    assert len({source.variable("n") for _ in range(5)}) == 5


def test_one_object_has_one_name_and_equal_objects_have_two() -> None:
    source = Source()
    first, second = [1], [1]
    assert source.constant("default", first) == source.constant("default", first)
    assert source.constant("default", first) != source.constant("default", second)


def test_short_arrays_have_a_prepared_layout_for_each_length() -> None:
    source = Source()
    name = source.array_layouts("i", "pack")
    assert [len(source.names[name][length](*range(length))) for length in range(SHORT_ARRAY)] == [
        4 * length for length in range(SHORT_ARRAY)
    ]


def test_the_function_contains_the_added_lines_and_names_the_message_in_tracebacks() -> None:
    source = Source()
    with source.block("for item in items:"):
        source.add("total += 1 // item")
    with source.block("if total:"):
        source.add("return total")
    function = source.compile("items, total", "decode Fetch v3")
    assert function([1, 1], 0) == 2
    with pytest.raises(ZeroDivisionError) as error:
        function([0], 0)
    assert str(error.traceback[-1].path).endswith("<decode Fetch v3>")


def test_data_never_becomes_source() -> None:
    with pytest.raises(AssertionError, match="no data"):
        Source().compile("view=__import__('os')", "decode")
