"""The drift watch's sample: whole item collections of randomly chosen segments, until there is enough."""

import random

import pytest

from builders import NOW
from tallystream.dynamodb import Page
from tallystream.rules import DEFAULT_COUNTERS, Rules
from tallystream.sampling import ITEMS_A_SEGMENT, MOST_DRAWN, MOST_SEGMENTS, sample, segments_of

RULES = Rules.parse(DEFAULT_COUNTERS)


def item(partition_key, sort_key):
    """Return an item with only its keys."""
    return {"PK": {"S": partition_key}, "SK": {"S": sort_key}}


def collection(post, likes):
    """Return a post with so many likes, as a scan finds them."""
    keys = [*(f"LIKE#USER#u{number}" for number in range(likes)), "META"]
    return [item(f"POST#{post}", key) for key in keys]


class Table:
    """A table in segments, whose pages have two items and cost one unit each."""

    def __init__(self, *segments):
        self.segments = segments
        self.scanned = []
        self.units = 0

    def scan(self, segment, segments):
        """Yield a segment's pages."""
        assert segments == len(self.segments)
        self.scanned.append(segment)
        items = self.segments[segment]
        for start in range(0, max(len(items), 1), 2):
            self.units += 1
            after = items[start + 1] if start + 2 < len(items) else None
            yield Page(NOW + self.units, items[start : start + 2], after)


def backwards(numbers, count):
    """Choose the last segments first."""
    return list(reversed(numbers))[:count]


def draw(table, *, choose=backwards, enough=lambda _: False):
    """Return the partition keys of a sample."""
    found = sample(table, len(table.segments), RULES, choose, enough)
    return [group.partition_key.removeprefix("POST#") for group in found]


def test_without_a_limit_the_sample_is_the_whole_table():
    """Each segment is scanned once, in the order that was chosen, to its last page."""
    table = Table(collection("a", 3) + collection("b", 0), [], collection("c", 5))
    assert draw(table) == ["c", "a", "b"]
    assert table.scanned == [2, 1, 0]


def test_a_collection_over_several_pages_is_one_with_all_its_children():
    """It began when its first page was asked for."""
    (group,) = sample(Table(collection("a", 7)), 1, RULES, backwards, lambda _: False)
    assert (group.children, group.counts, group.began) == (7, {("META", "likeTally"): 7}, NOW + 1)


def test_no_segment_is_begun_when_there_is_enough():
    """The collections of the segments before are the sample."""
    table = Table(collection("a", 1), collection("b", 1), collection("c", 1))
    assert draw(table, enough=lambda found: len(found) >= 2) == ["c", "b"]
    assert table.scanned == [2, 1]


def test_a_collection_that_is_cut_off_is_left_out():
    """Judged by a part of its children, it would be taken for drifting; the ones before it are whole."""
    table = Table(collection("a", 1) + collection("b", 50) + collection("c", 1))
    assert draw(table, enough=lambda _: table.units >= 5) == ["a"]
    assert table.units == 5


def test_a_segment_that_ends_with_the_limit_is_whole():
    """Its last page says that nothing comes after it."""
    table = Table(collection("a", 3))
    assert draw(table, enough=lambda _: table.units >= 2) == ["a"]


def test_collections_in_which_nothing_counts_are_left_out():
    """Other programs' items are no business of the audit; a like without its post is."""
    table = Table([item("USER#u1", "PROFILE"), item("POST#gone", "LIKE#USER#u1")])
    assert draw(table) == ["gone"]


def test_each_post_is_as_likely_to_be_drawn_as_any_other():
    """With real random numbers, a tenth of the segments each time finds each of them about equally often."""
    generator, drawn = random.Random(7), []
    for _ in range(1000):
        table = Table(*(collection(str(number), 1) for number in range(50)))
        drawn += draw(table, choose=generator.sample, enough=lambda found: len(found) >= 5)
    times = [drawn.count(str(number)) for number in range(50)]
    assert sum(times) == 5000
    assert 60 < min(times) <= max(times) < 140


@pytest.mark.parametrize(
    ("items", "segments"),
    [
        (0, 1),
        (ITEMS_A_SEGMENT - 1, 1),
        (10 * ITEMS_A_SEGMENT, 10),
        (ITEMS_A_SEGMENT * MOST_SEGMENTS, MOST_SEGMENTS),
        (10**12, MOST_SEGMENTS),
    ],
)
def test_a_segment_holds_some_hundred_items(items, segments):
    """DynamoDB takes one to a million segments."""
    assert segments_of(items) == segments


def test_a_table_that_was_emptied_ends_the_drawing():
    """Its item count may be hours old; so many empty segments are enough."""
    asked = []

    def choose(numbers, count):
        asked.append((len(numbers), count))
        return []

    assert sample(Table(), MOST_SEGMENTS, RULES, choose, lambda _: False) == []
    assert asked == [(MOST_SEGMENTS, MOST_DRAWN)]
