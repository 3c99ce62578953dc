"""What single paths do beside what a run shows of them."""

import random

import pytest

from tallyctl.comparison.metering import PAGE_BYTES, MeteredDynamoDb
from tallyctl.comparison.paths import PATHS, Setting, count_likes, post_item
from tallyctl.comparison.published import PUT_S
from tallyctl.comparison.simulated import Clock, Contention, SimulatedDynamoDb
from tallystream.likes import BusyError

LIKE = ("POST#p1", "LIKE#USER#u1")


@pytest.fixture
def table():
    """Give a table that holds the post p1."""
    table = MeteredDynamoDb()
    table.items.update([post_item("p1")])
    return table


def writer(name, table, contention=None):
    """Return a path's writer on a table."""
    clock = Clock()
    client = SimulatedDynamoDb(table, clock, contention)
    return PATHS[name].writer(Setting(client, "T", clock.sleep, clock.epoch, random.Random(1)))


def tally(table):
    """Return the tally of p1."""
    return int(table.items["POST#p1", "META"]["likeTally"]["N"])


@pytest.mark.parametrize("name", ["transaction", "optimistic"])
def test_a_guarded_path_counts_a_repeated_like_once(name, table):
    """A like that is there is not new, and an unlike of nothing takes nothing away."""
    likes = writer(name, table)
    assert [likes.like("p1", "u1", 1), likes.like("p1", "u1", 2), tally(table)] == [True, False, 1]
    assert [likes.unlike("p1", "u1"), likes.unlike("p1", "u1"), tally(table)] == [True, False, 0]


def test_the_unguarded_path_counts_a_repeated_like_twice(table):
    """That is what it costs to have no condition."""
    likes = writer("unguarded", table)
    likes.like("p1", "u1", 1)
    likes.like("p1", "u1", 2)
    assert tally(table) == 2


def test_an_optimistic_like_that_cannot_be_counted_is_taken_back(table):
    """The caller is told to come again, and nothing is half done: neither after a like nor after an unlike."""
    always = Contention(1e9)
    always.take(("POST#p1", "META"), 0.0)
    with pytest.raises(BusyError):
        writer("optimistic", table, always).like("p1", "u1", 1)
    assert (LIKE in table.items, tally(table)) == (False, 0)
    writer("optimistic", table).like("p1", "u1", 1)
    with pytest.raises(BusyError):
        writer("optimistic", table, always).unlike("p1", "u1")
    assert (LIKE in table.items, tally(table)) == (True, 1)


def test_counting_goes_through_all_pages(table):
    """Five likes of a third of a megabyte are two pages; the post is not counted."""
    for user in range(5):
        item = {"PK": {"S": "POST#p1"}, "SK": {"S": f"LIKE#USER#{user}"}, "text": {"S": "x" * (PAGE_BYTES // 3)}}
        table.put_item(Item=item)
    assert count_likes(SimulatedDynamoDb(table), "T", "p1") == 5
    assert table.meter.requests["Query"] == 2


@pytest.mark.parametrize("name", ["stream", "blind"])
def test_an_invocation_takes_at_least_as_long_as_one_write(name):
    """Many parents take as long as they were measured to take; a batch of nothing that counts takes no request."""
    seconds = PATHS[name].seconds
    assert (seconds(0, 0), seconds(1, 1)) == (0.0, PUT_S)
    assert seconds(5000, 1090) == pytest.approx(2.0)
