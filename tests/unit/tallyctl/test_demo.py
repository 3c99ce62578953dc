"""What the demo sends, and how it adds up what it saw."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from tallyctl.demo import Batches, PostResult, Result, batch_figures, percentile
from tallyctl.workload import workload


def result(**changes):
    """A demo of two posts and ten likes that went well."""
    fields = {
        "path": "stream",
        "posts": [PostResult("p1", 3, 3), PostResult("p2", 1, 1)],
        "probe": PostResult("probe", 2, 2),
        "likes": 8,
        "probes": 2,
        "batches": Batches(batches=2, received=10, parents=5, writes=4),
        "write_units": 14.0,
        "staleness_s": [1.0, 2.0],
        "seconds": 3.21,
    }
    return Result(**{**fields, **changes})


def test_the_figures_have_the_keys_that_others_read():
    """The keys of the contract are there, and the figures add up."""
    figures = result().figures()
    contract = {
        "posts",
        "likes",
        "wrong",
        "write_units_per_like",
        "batches",
        "staleness_p50_s",
        "staleness_p99_s",
        "seconds",
    }
    assert contract <= figures.keys()
    assert (figures["posts"], figures["likes"], figures["wrong"]) == (2, 8, 0)
    assert (figures["write_units_per_like"], figures["parents_per_batch"], figures["records_per_batch"]) == (
        1.4,
        2.5,
        5,
    )
    json.dumps(figures)


@pytest.mark.parametrize(
    "wrong", [{"posts": [PostResult("p1", 3, 4), PostResult("p2", 1, 1)]}, {"probe": PostResult("probe", 2, 1)}]
)
def test_a_tally_that_differs_is_wrong_and_named(wrong):
    """Too high or too low, on a post or on the probes' own."""
    figures = result(**wrong).figures()
    assert figures["wrong"] == 1
    assert len(figures["drifting"]) == 1


def test_without_batches_there_are_no_averages():
    """On the transaction path the aggregator has nothing to do."""
    figures = result(batches=Batches(), staleness_s=[]).figures()
    assert figures["batches"] == 0
    assert figures["parents_per_batch"] is None
    assert figures["staleness_p50_s"] is None


@pytest.mark.parametrize(
    ("values", "rank", "expected"),
    [([], 50, None), ([7], 50, 7), ([7], 99, 7), ([3, 1, 2], 50, 2), ([1, 2, 3, 4], 50, 2), (range(1, 101), 99, 99)],
)
def test_a_percentile_is_one_of_the_values(values, rank, expected):
    """By nearest rank: the smallest value that so many percent do not exceed."""
    assert percentile(list(values), rank) == expected


def test_the_figures_of_a_batch_are_read_from_its_log_line_only():
    """Notes, metrics and lines of the runtime are passed over."""
    figures = {"received": 3, "parents": 2, "writes": 2}
    assert batch_figures(json.dumps({"level": "INFO", "message": "batch", "failed": 0, **figures})) == figures
    for other in (
        "START RequestId: 1",
        "[]",
        '{"Received": [3.0]}',
        '{"message": "orphaned"}',
        '{"message": "batch"}',
    ):
        assert batch_figures(other) is None


def test_the_same_seed_sends_the_same_likes():
    """And another one does not."""
    assert workload(5, 20, 300, seed=1) == workload(5, 20, 300, seed=1)
    assert workload(5, 20, 300, seed=1) != workload(5, 20, 300, seed=2)


def test_a_workload_has_what_breaks_naive_counters():
    """Of the size asked for: a hot post, unlikes, requests sent twice, and a like and its unlike side by side."""
    operations = workload(20, 100, 2000, seed=1)
    assert len(operations) == 2000
    sizes = Counter(operation.post for operation in operations)
    assert sizes[0] > 5 * sizes[19] > 0
    assert 0.1 < sum(not operation.like for operation in operations) / 2000 < 0.25
    pairs = list(pairwise(operations))
    assert sum(first == second for first, second in pairs) > 50
    contested = sum((a.post, a.user, a.like) == (b.post, b.user, not b.like) for a, b in pairs)
    assert contested > 50
