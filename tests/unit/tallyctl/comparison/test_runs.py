"""Every path on every workload without faults: the bounds that the product promises, and what the others cost."""

import dataclasses

import pytest

from tallyctl.comparison.paths import PATHS
from tallyctl.comparison.published import HOLD_S, PUT_S
from tallyctl.comparison.runs import run
from tallyctl.comparison.workloads import Operation, operations, spread

ALONE = 1.0
"""A rate at which nobody is in anybody's way."""


def played(name, workload="vote", size=600, rate=ALONE, window_s=2.0):
    """Play a workload on a path."""
    return run(PATHS[name], operations(workload, size, rate, 1), window_s, 1)


def test_the_stream_path_costs_hardly_more_than_the_like_in_a_vote():
    """In one batch window, at most 1.02 write units a like."""
    vote = played("stream", size=2000, rate=1000.0)
    assert vote.write_units_per_like <= 1.02
    assert vote.meter.requests == {"PutItem": 2000, "UpdateItem": 10}


@pytest.mark.parametrize("rate", [ALONE, 1000.0])
def test_the_stream_path_costs_at_most_two_units_in_the_long_tail(rate):
    """At worst each like has a batch of its own, and its post an update."""
    assert 1 < played("stream", "social", 2000, rate).write_units_per_like <= 2.00


@pytest.mark.parametrize("workload", ["vote", "social", "viral", "churn"])
def test_the_transaction_path_costs_exactly_four_units(workload):
    """Two items, each of them twice: for likes and unlikes, whatever the workload."""
    assert played("transaction", workload).write_units_per_like == 4.00


@pytest.mark.parametrize("workload", ["vote", "social", "viral", "churn"])
def test_marks_add_no_write(workload):
    """What the product writes is what a blind ADD of the same batches writes."""
    stream, blind = (played(name, workload, 2000, 1000.0).meter for name in ("stream", "blind"))
    assert stream.requests == blind.requests
    assert stream.write_units == blind.write_units


@pytest.mark.parametrize(
    ("name", "units", "requests"),
    [
        ("unguarded", 2.0, {"PutItem", "UpdateItem"}),
        ("optimistic", 2.0, {"PutItem", "GetItem", "UpdateItem"}),
        ("powertools", 2.0, {"PutItem", "UpdateItem"}),
        ("marker", 5.0, {"PutItem", "TransactWriteItems"}),
        ("count", 1.0, {"PutItem"}),
    ],
)
def test_every_other_path_costs_what_its_requests_do(name, units, requests):
    """Where nobody is in the way."""
    vote = played(name)
    assert vote.write_units_per_like == units
    assert set(vote.meter.requests) == requests


@pytest.mark.parametrize("workload", ["vote", "churn"])
@pytest.mark.parametrize("name", PATHS)
def test_without_faults_every_path_is_exact(name, workload):
    """Whatever is refused for conflicts is not half done either."""
    assert played(name, workload, 1500, 1000.0).drift == 0


@pytest.mark.parametrize("name", ["transaction", "optimistic"])
def test_many_at_once_on_one_post_are_in_each_others_way(name):
    """Conflicts come with the rate: none at one a second, and at a thousand most have to come again."""
    calm, crowded = played(name, "viral", 300), played(name, "viral", 300, 1000.0)
    assert (calm.conflicts, calm.accepted) == (0, 300)
    assert crowded.conflicts > 300
    assert crowded.accepted < 150


def test_two_likes_of_a_post_at_once_take_one_more_try():
    """The later one meets the transaction of the first, waits, and goes through: the user waits for two requests."""
    pair = [Operation(0.0, like=True, post="p", user="a"), Operation(HOLD_S / 2, like=True, post="p", user="b")]
    both = run(PATHS["transaction"], pair, 2.0, 1)
    assert both.conflicts >= 1
    assert both.round_trips == 2 + both.conflicts
    assert (both.accepted, both.drift) == (2, 0)
    assert both.latency_s[1] > both.latency_s[0]


@pytest.mark.parametrize(("name", "trips"), [("stream", 1), ("transaction", 1), ("unguarded", 2), ("optimistic", 3)])
def test_a_user_waits_for_the_writers_requests_alone(name, trips):
    """What the aggregator sends, nobody waits for."""
    assert played(name, size=100).round_trips == 100 * trips


def test_what_is_counted_at_once_is_never_stale():
    """Only where the stream is counted does a like take its time to show: a window, a look and an invocation."""
    assert played("transaction").staleness_s == [0.0]
    stale = played("stream", size=2000, rate=100.0).staleness_s
    assert len(stale) == 2000
    assert 0 < min(stale) < 0.5
    assert 2.0 < max(stale) < 2.5


def test_reading_a_tally_costs_the_same_however_many_likes_there_are():
    """Half a unit; counting grows with the likes, and on average by how often each post is read."""
    few, many = (played(name, "viral", 600) for name in ("stream", "count"))
    assert (few.hottest_read_units, few.mean_read_units) == (0.5, 0.5)
    assert many.hottest_read_units == many.mean_read_units > 5
    social = played("count", "social", 600)
    assert 0.5 < social.mean_read_units < social.hottest_read_units


def test_an_aggregator_with_one_write_a_record_falls_behind():
    """One invocation at a time, one request after the other: the stream is written faster than that."""
    assert played("powertools", "viral", 1000, 1000.0).aggregator_load > 5
    assert played("stream", "viral", 1000, 1000.0).aggregator_load < 0.1


def test_a_function_that_was_idle_for_long_starts_anew():
    """Three likes an hour apart find no function of either kind running, but for the first, which nobody knows of."""
    rare = run(PATHS["stream"], operations("viral", 3, 1 / 3600, 1), 2.0, 1)
    assert (rare.cold_requests, rare.cold_invocations) == (2, 2)
    often = run(PATHS["stream"], spread(1, 50, 1.0, 1), 2.0, 1)
    assert (often.cold_requests, often.cold_invocations) == (0, 0)


@pytest.mark.parametrize("name", PATHS)
def test_the_same_seed_gives_the_same_run(name):
    """No clock of the machine, and no order of a set, is in any figure."""
    assert played(name, "churn", 300, 200.0) == played(name, "churn", 300, 200.0)


def test_a_path_with_a_defect_shows_its_drift():
    """A path that forgets to uncount is not exact: the drift is looked for, not assumed."""

    class Forgetful(PATHS["unguarded"].writer):
        def unlike(self, post_id, user_id):
            self._client.delete_item(
                TableName="T", Key={"PK": {"S": f"POST#{post_id}"}, "SK": {"S": f"LIKE#USER#{user_id}"}}
            )
            return True

    made = operations("churn", 3000, ALONE, 1)
    wrong = run(dataclasses.replace(PATHS["unguarded"], writer=Forgetful), made, 2.0, 1)
    assert wrong.drift == sum(not operation.like for operation in made) > 0


def test_simulated_latency_is_made_of_requests_and_own_code():
    """One write and five milliseconds of our own."""
    assert played("stream", size=10).latency_s == pytest.approx([PUT_S + 0.005] * 10)
