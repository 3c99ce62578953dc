"""The same faults for every path: who stays exact, who does not, and that nobody is spared."""

import dataclasses

import pytest

from tallyctl.comparison.faults import KINDS, Planned, Schedule, drift_after
from tallyctl.comparison.paths import PATHS
from tallyctl.comparison.stream import SHARDS
from tallyctl.comparison.workloads import WORKLOADS, operations
from tallystream.faults import Kind
from tallystream.likes import BusyError

SIZE = 600
EXACT = ("stream", "transaction", "marker", "count")


def drift(name, workload="vote", kinds=tuple(KINDS), seed=1):
    """Return a path's drift after the schedule of a seed."""
    made = operations(workload, SIZE, 1000.0, seed)
    return drift_after(PATHS[name], made, Schedule.from_seed(seed, SIZE, kinds), seed)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("name", EXACT)
def test_paths_that_know_what_they_counted_stay_exact(name, workload):
    """With lost answers, kills, throttles and redelivered batches, over several seeds."""
    assert [drift(name, workload, seed=seed) for seed in range(1, 5)] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["blind", "unguarded", "powertools", "optimistic"])
def test_paths_that_do_not_know_drift(name):
    """With the seed that `compare` has by default, on each of the workloads."""
    assert all(drift(name, workload) > 0 for workload in WORKLOADS)


@pytest.mark.parametrize("name", PATHS)
def test_without_a_fault_nothing_drifts(name):
    """It is the faults that do it."""
    assert drift_after(PATHS[name], operations("churn", SIZE, 1000.0, 1), Schedule({}, (100, 400), {}), 1) == 0


@pytest.mark.parametrize(
    ("kind", "blind", "unguarded"),
    [
        ("lost answers", True, True),
        ("kills", True, True),
        ("throttles", True, False),
        ("redelivery", True, False),
    ],
)
def test_each_kind_of_fault_hits_whom_it_concerns(kind, blind, unguarded):
    """Two writes have no batch to be redelivered, and a throttled one is repeated by the caller and counted once."""
    assert (drift("blind", "social", (kind,)) > 0) is blind
    assert (drift("unguarded", "social", (kind,)) > 0) is unguarded


def test_a_lost_answer_doubles_one_count():
    """One fault at the second write of one operation: the unguarded path is wrong by one, the others are not."""
    schedule = Schedule({7: Planned("lost", 0.9)}, (), {})
    made = operations("vote", 20, 1000.0, 1)
    assert {name: drift_after(path, made, schedule, 1) for name, path in PATHS.items()} == {
        **dict.fromkeys(PATHS, 0),
        "unguarded": 1,
        # The repetition finds another version than it read, reads again, and counts the like a second time.
        "optimistic": 1,
    }


def test_a_batch_that_comes_twice_is_counted_twice_by_those_without_marks():
    """All twenty likes of one redelivered batch are in a blind tally twice."""
    schedule = Schedule({}, (), {(20, shard): (Planned("redelivered", 0.0),) for shard in range(SHARDS)})
    made = operations("viral", 20, 1000.0, 1)
    drifts = {name: drift_after(path, made, schedule, 1) for name, path in PATHS.items()}
    assert drifts == {**dict.fromkeys(PATHS, 0), "blind": 20, "powertools": 20}


def test_a_kill_half_way_strikes_every_aggregator_at_the_same_record():
    """After the tenth of twenty likes: blind and per-record counting begin again with what they had counted."""
    schedule = Schedule({}, (), {(20, shard): (Planned("killed_after", 0.5),) for shard in range(SHARDS)})
    made = operations("viral", 20, 1000.0, 1)
    drifts = {name: drift_after(path, made, schedule, 1) for name, path in PATHS.items()}
    assert drifts == {**dict.fromkeys(PATHS, 0), "blind": 20, "powertools": 11}


def test_what_is_reported_as_failed_is_delivered_again_from_there_on():
    """Record 10 of 20 is throttled: Powertools counts on and reports it, so that the nine after it come twice.

    A blind ADD of the one post is refused as a whole, and comes again as a whole.
    """
    schedule = Schedule({}, (), {(20, shard): (Planned("throttled", 0.5),) for shard in range(SHARDS)})
    made = operations("viral", 20, 1000.0, 1)
    drifts = {name: drift_after(path, made, schedule, 1) for name, path in PATHS.items()}
    assert drifts == {**dict.fromkeys(PATHS, 0), "powertools": 9}


def test_a_schedule_comes_from_its_seed_alone():
    """The same for every path; another seed gives another one."""
    assert Schedule.from_seed(1, 500) == Schedule.from_seed(1, 500)
    assert Schedule.from_seed(1, 500) != Schedule.from_seed(2, 500)


def test_a_schedule_has_the_kinds_that_were_asked_for():
    """All of them by default, and one alone if only one is asked for."""
    assert all(count > 0 for count in Schedule.from_seed(1, 2000).planted().values())
    assert {name for name, count in Schedule.from_seed(1, 2000, ("kills",)).planted().items() if count} == {"kills"}
    assert not Schedule.from_seed(1, 2000, ("redelivery",)).operations


def test_marks_are_what_keeps_the_stream_path_exact():
    """With its aggregator replaced by the blind one, the same schedule leaves it wrong."""
    made = operations("vote", SIZE, 1000.0, 1)
    blinded = dataclasses.replace(PATHS["stream"], aggregator=PATHS["blind"].aggregator)
    assert drift_after(blinded, made, Schedule.from_seed(1, SIZE), 1) > 0


def test_a_path_that_never_answers_is_an_error():
    """A caller repeats a request, but not for ever."""

    class Dead:
        def __init__(self, setting):
            """Take the setting as any writer does."""

        def like(self, *_):
            raise BusyError(Kind.THROTTLED)

    with pytest.raises(RuntimeError, match="no answer after 10 tries"):
        drift_after(
            dataclasses.replace(PATHS["count"], writer=Dead), operations("viral", 1, 1.0, 1), Schedule({}, (), {}), 1
        )
