"""The stream in simulated time: what becomes a record, and when which batch is delivered."""

import random

import pytest

from tallyctl.comparison.published import INVOKE_S, POLL_S
from tallyctl.comparison.simulated import EPOCH, Clock
from tallyctl.comparison.stream import LARGEST_BATCH, SHARDS, Shard, deliver_all, shard_of


def like(user):
    """Return the key of a like of p1."""
    return "POST#p1", f"LIKE#USER#{user}"


def shard_with(times, *, filtered=True):
    """Return a shard that got a like at each of these times."""
    shard = Shard(0, Clock(), filtered=filtered)
    for user, at in enumerate(times):
        shard.clock.now = at
        shard.on_change("INSERT", like(user))
    return shard


def delivered(shard, window_s, seconds=lambda _changes, _parents: 0.0):
    """Deliver all of a shard; return the invocations, and the batches' sizes."""
    sizes = []

    def aggregator(event):
        sizes.append(len(event["Records"]))
        return {"batchItemFailures": []}

    return deliver_all(shard, aggregator, seconds, window_s, random.Random(1)), sizes


def test_a_filtered_shard_has_the_likes_alone():
    """The counter's own writes and a marker are filtered out; a mapping with a window delivers them."""
    for filtered, names in ((True, ["INSERT", "REMOVE"]), (False, ["INSERT", "MODIFY", "INSERT", "REMOVE"])):
        shard = Shard(0, Clock(), filtered=filtered)
        shard.on_change("INSERT", like("u1"))
        shard.on_change("MODIFY", ("POST#p1", "META"))
        shard.on_change("INSERT", ("POST#p1", "COUNTED#1"))
        shard.on_change("REMOVE", like("u1"))
        assert [record["eventName"] for _, _, record in shard.pending] == names


def test_records_are_in_the_order_of_their_time():
    """A write that is played later but was made earlier comes first, by its sequence number as well."""
    shard = shard_with([2.0, 1.0, 1.0])
    times = [record["dynamodb"]["ApproximateCreationDateTime"] for _, _, record in shard.pending]
    numbers = [record["dynamodb"]["SequenceNumber"] for _, _, record in shard.pending]
    assert times == [EPOCH + 1, EPOCH + 1, EPOCH + 2]
    assert numbers == sorted(set(numbers))
    assert all(21 <= len(number) <= 40 and number.isdigit() for number in numbers)


def test_a_batch_gathers_for_a_window_from_its_first_record():
    """Likes at 0, 1 and 1.9 are one batch of a window of two seconds; the one at 5 waits for its own window."""
    invocations, sizes = delivered(shard_with([0.0, 1.0, 1.9, 5.0]), 2.0)
    assert sizes == [3, 1]
    first, second = invocations
    assert 2.0 + INVOKE_S <= first.ended <= 2.0 + INVOKE_S + POLL_S
    assert first.staleness_s == pytest.approx([first.ended, first.ended - 1.0, first.ended - 1.9])
    assert 7.0 < second.ended < 7.5


def test_a_full_batch_does_not_wait_for_the_window():
    """Ten thousand records are all that an invocation takes."""
    invocations, sizes = delivered(shard_with([0.001 * n for n in range(LARGEST_BATCH + 5)]), 60.0)
    assert sizes == [LARGEST_BATCH, 5]
    assert invocations[0].ended < 11


def test_an_invocation_that_takes_long_makes_the_next_batch_larger():
    """One at a time: what comes meanwhile waits, and is delivered at once when the function is free."""
    invocations, sizes = delivered(shard_with([0.0, 1.0, 2.0, 3.0, 4.0]), 0.0, lambda _changes, _parents: 3.5)
    assert sizes == [1, 3, 1]
    assert invocations[1].ended == pytest.approx(invocations[0].ended + 3.5, abs=POLL_S + INVOKE_S)


def test_a_mapping_with_a_window_names_the_shard_and_ends_each_window():
    """The product's marks need the shard id; the end of a window is an invocation more."""
    shard = shard_with([0.0, 100.0], filtered=False)
    assert shard.event([])["shardId"].startswith("shardId-")
    assert "window" in shard.event([])
    assert "window" not in shard_with([]).event([])
    invocations, sizes = delivered(shard, 2.0)
    assert len(sizes) == 2
    assert len(invocations) == 4


def test_a_failed_batch_is_no_figure():
    """Without a planted fault nothing may fail: that would be a path that does not work."""
    failing = {"batchItemFailures": [{"itemIdentifier": "1"}]}
    with pytest.raises(RuntimeError, match="failed without a fault"):
        deliver_all(shard_with([0.0]), lambda _event: failing, lambda _c, _p: 0.0, 2.0, random.Random(1))


def test_posts_are_spread_over_all_shards():
    """A post's items are in one shard, and many posts fill all of them."""
    assert {shard_of(f"POST#{number}") for number in range(50)} == set(range(SHARDS))
