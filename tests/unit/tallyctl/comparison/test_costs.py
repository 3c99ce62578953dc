"""Item sizes, units and prices, against the examples of AWS's own documents."""

import pytest

from tallyctl.comparison.costs import Usage, item_size, read_units, units_of_write, usd_per_million


def item_of(size):
    """Return an item of that many bytes."""
    return {"PK": {"S": "x" * (size - 2)}}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "abc"}, 3),
        ({"S": "좋아요"}, 9),
        ({"N": "0"}, 2),
        ({"N": "7"}, 2),
        ({"N": "123"}, 3),
        ({"N": "1000"}, 2),
        ({"N": "-12"}, 3),
        ({"N": "1796040000"}, 4),
        ({"B": b"1234"}, 4),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"M": {}}, 3),
        ({"M": {"seq": {"S": "12"}, "at": {"N": "1"}}}, 3 + (3 + 2 + 1) + (2 + 2 + 1)),
        ({"L": [{"S": "a"}, {"N": "1"}]}, 3 + (1 + 1) + (2 + 1)),
    ],
)
def test_a_value_has_the_size_that_the_rules_give(value, size):
    """Text counts in UTF-8, a number two digits a byte without zeros at its end, a map three bytes and one an entry."""
    assert item_size({"name": value}) == 4 + size


def test_a_set_has_no_size():
    """The rules say nothing of sets: a guess would be a price that nobody charges."""
    with pytest.raises(ValueError, match="SS"):
        item_size({"a": {"SS": ["x"]}})


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [
        (None, item_of(1), 1),
        (None, item_of(1024), 1),
        (None, item_of(1025), 2),
        (item_of(3000), item_of(100), 3),
        (item_of(100), item_of(3000), 3),
        (item_of(2048), None, 2),
        (None, None, 1),
    ],
)
def test_a_write_is_charged_by_the_larger_item(before, after, units):
    """Whole kilobytes of the larger of the item before and after; nothing at all still takes one unit."""
    assert units_of_write(before, after) == units


@pytest.mark.parametrize(
    ("size", "strong", "eventual"), [(0, 1, 0.5), (4096, 1, 0.5), (4097, 2, 1), (3500, 1, 0.5), (10_240, 3, 1.5)]
)
def test_a_read_is_charged_by_four_kilobytes(size, strong, eventual):
    """Whole steps of 4 KB, half of them for an eventually consistent read."""
    assert (read_units(size, consistent=True), read_units(size, consistent=False)) == (strong, eventual)


def test_a_million_likes_cost_the_sum_of_their_parts():
    """Each part is its use times its price: here 2 write units, 5 read units, one request, and 0.1 invocations."""
    usage = Usage(write_units=2, read_units=5, requests=1, api_s=0.01, invocations=0.1, aggregator_s=0.002)
    assert usd_per_million(usage) == pytest.approx(
        {
            "dynamodb_writes": 1.25,
            "dynamodb_reads": 0.625,
            "http_api": 1.00,
            "api_requests": 0.20,
            "api_gb_s": 0.01 * 0.5 * 13.3334,
            "aggregator_requests": 0.02,
            "aggregator_gb_s": 0.002 * 1769 / 1024 * 13.3334,
        }
    )
