"""The whole comparison, made small: its keys, its series, and a recommendation that follows from the figures."""

import dataclasses
import json
import math

import pytest

from tallyctl.comparison.compare import Comparison, compare, recommend
from tallyctl.comparison.costs import usd_per_million
from tallyctl.comparison.paths import PATHS
from tallyctl.comparison.runs import run
from tallyctl.comparison.series import (
    CostSeries,
    _crossing,
    ceiling,
    cost_by_posts,
    cost_by_rate,
    drift_by_fault,
    staleness_by_window,
    usage_of,
)
from tallyctl.comparison.workloads import operations
from tallyctl.errors import TallyctlError


def test_the_figures_have_the_keys_that_others_read(vote):
    """The keys of the contract are there for each path, and all of it is JSON."""
    figures = json.loads(json.dumps(vote.figures()))
    assert {"workload", "operations", "paths", "recommendation"} <= set(figures)
    contract = {
        "write_units_per_like",
        "read_units_per_read",
        "usd_per_million_likes",
        "requests",
        "conflicts",
        "drift_after_faults",
    }
    more = {"round_trips", "staleness_p50_s", "staleness_p99_s", "ceiling_likes_per_second"}
    assert set(figures["paths"]) == set(PATHS)
    assert all(contract | more <= set(path) for path in figures["paths"].values())


def test_a_second_run_gives_the_same_figures(vote):
    """Nothing in them is from this machine's clock."""
    ceiling.cache_clear()
    assert compare("vote", operations=1000, rate=500.0).figures() == vote.figures()


def test_a_price_is_the_sum_of_its_parts(vote):
    """The dollars of each path are those of its parts, rounded."""
    for path in vote.figures()["paths"].values():
        assert path["usd_per_million_likes"] == pytest.approx(sum(path["usd_parts"].values()), abs=0.001)


def test_a_user_waits_for_so_many_round_trips(vote):
    """One write, or two without conditions: an average over all requests, the refused ones included."""
    paths = vote.figures()["paths"]
    assert {name: paths[name]["round_trips"] for name in ("stream", "blind", "count", "unguarded")} == {
        "stream": 1.0,
        "blind": 1.0,
        "count": 1.0,
        "unguarded": 2.0,
    }
    assert paths["transaction"]["round_trips"] > 1.5


def test_a_count_is_read_ten_times_for_each_like():
    """Ten reads of half a unit, and of the writer's own reads nothing: the stream path has none."""
    assert usage_of(run(PATHS["stream"], operations("vote", 50, 1.0, 1), 2.0, 1)).read_units == 5.0


@pytest.mark.usefixtures("small")
def test_progress_is_told_of_every_step():
    """Each path and each series is a step, and the last word is that all are done."""
    told = []
    compare("viral", operations=100, rate=500.0, progress=lambda *step: told.append(step))
    assert [done for _, done, _ in told] == list(range(len(PATHS) + 4))
    assert told[-1] == ("done", len(PATHS) + 3, len(PATHS) + 3)
    assert [what for what, _, _ in told][: len(PATHS)] == list(PATHS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": "votes"}, "choose one of vote, social, viral, churn"),
        ({"workload": "vote", "operations": 0}, "^--operations cannot be 0: give a number from 1 to 1,000,000$"),
        ({"workload": "vote", "operations": 1_000_001}, "^--operations cannot be 1,000,001: "),
        ({"workload": "vote", "rate": 0.0}, "^--rate cannot be 0.0: "),
        ({"workload": "vote", "rate": math.nan}, "^--rate cannot be nan: "),
        ({"workload": "vote", "rate": math.inf}, "^--rate cannot be inf: "),
        ({"workload": "vote", "window_s": -1.0}, "^--batch-window cannot be -1.0: give a number from 0 to 300$"),
        ({"workload": "vote", "window_s": 301.0}, "^--batch-window cannot be 301.0: "),
    ],
)
def test_a_wrong_argument_says_what_is_right(arguments, message):
    """The message is for whoever typed the command."""
    with pytest.raises(TallyctlError, match=message):
        compare(**arguments)


@pytest.mark.usefixtures("small")
def test_one_operation_is_enough():
    """No figure divides by a length of time or a number that can be zero."""
    assert isinstance(compare("vote", operations=1), Comparison)


def test_a_busy_vote_is_for_the_stream(vote):
    """It is exact and the cheapest; the sentence says what the transaction would cost, and that it refuses."""
    said = vote.recommendation
    assert said.startswith("Take stream for the workload vote: at ")
    assert "the cheapest path that stays exact under faults and keeps up" in said
    assert "; transaction costs " in said
    assert "refuses" in said


@pytest.mark.usefixtures("small")
def test_rare_likes_are_for_the_transaction():
    """Where each like would start a function only to be counted, the transaction is cheaper, and counts at once."""
    said = compare("viral", operations=300, rate=0.001).recommendation
    assert said.startswith("Take transaction for the workload viral: ")
    assert "counted at once; stream costs " in said


def changed(result, **changes):
    """Return a path's result with changes to what was seen when it ran."""
    return dataclasses.replace(result, run=dataclasses.replace(result.run, **changes))


def test_a_path_that_counts_at_once_is_taken_if_it_costs_about_the_same(vote):
    """Were the transaction as cheap and never in conflict, nobody would want to wait for the count."""
    transaction = changed(vote.paths["transaction"], accepted=1000)
    cheap = dataclasses.replace(transaction, usd={"all": vote.paths["stream"].total_usd * 1.05})
    said = recommend("vote", {**vote.paths, "transaction": cheap})
    assert said.startswith("Take transaction for the workload vote")
    assert "about as cheap as stream" in said
    assert "counted at once" in said
    dear = dataclasses.replace(transaction, usd={"all": vote.paths["stream"].total_usd * 1.2})
    assert recommend("vote", {**vote.paths, "transaction": dear}).startswith("Take stream")


def test_the_recommendation_follows_the_figures(vote):
    """A path that drifts is not taken however cheap, one that is exact and cheaper is, and if none fits it is said."""
    drifting = {**vote.paths, "stream": dataclasses.replace(vote.paths["stream"], drift_after_faults=1)}
    assert not recommend("vote", drifting).startswith("Take stream")
    cheaper = {**vote.paths, "marker": dataclasses.replace(vote.paths["marker"], usd={"all": 0.01})}
    cheaper["marker"] = changed(cheaper["marker"], seconds=1e9)
    assert recommend("vote", cheaper).startswith("Take marker")
    hopeless = {name: dataclasses.replace(result, drift_after_faults=1) for name, result in vote.paths.items()}
    assert recommend("vote", hopeless).startswith("No path fits")


def test_each_objection_has_its_figure(vote):
    """What speaks against a path is what was found of it."""
    assert vote.paths["stream"].objections == []
    assert f"drifts by {vote.paths['blind'].drift_after_faults} after the faults" in vote.paths["blind"].objections
    assert "counts more slowly than likes come" in vote.paths["marker"].objections
    assert any(objection.startswith("refuses") for objection in vote.paths["transaction"].objections)
    assert any("more with each like" in objection for objection in vote.paths["count"].objections)


@pytest.mark.usefixtures("small")
def test_likes_on_more_posts_cost_more():
    """The stream path saves by counting many likes at once: the more posts share them, the less it does."""
    costs = cost_by_posts(1000.0, 2.0, 1)
    assert costs.x == [1, 10, 100, 1000, 10_000, 100_000]
    assert costs.usd["stream"] == sorted(costs.usd["stream"])
    assert costs.usd["transaction"][0] > costs.usd["transaction"][-1]


@pytest.mark.usefixtures("small")
def test_there_is_a_rate_below_which_the_transaction_is_cheaper():
    """Where each like starts a function of its own only to be counted, the stream path is the dearer one."""
    costs = cost_by_rate("viral", 2.0, 1)
    assert costs.usd["stream"][0] > costs.usd["transaction"][0]
    assert costs.usd["stream"][-1] < costs.usd["transaction"][-1]
    assert costs.break_even is not None
    assert costs.x[0] < costs.break_even < costs.x[-1]


@pytest.mark.parametrize(
    ("stream", "transaction", "crossing"),
    [([3.0, 1.0], [2.0, 2.0], 10.0), ([1.0, 1.0], [2.0, 2.0], None), ([2.0, 1.0], [1.0, 1.0], 100.0)],
)
def test_two_lines_cross_where_they_are_equal(stream, transaction, crossing):
    """On a logarithmic scale from 1 to 100."""
    found = _crossing([1.0, 100.0], stream, transaction)
    assert found == (None if crossing is None else pytest.approx(crossing))


@pytest.mark.usefixtures("small")
def test_a_longer_window_is_staler():
    """About half the window for most likes, and a little more than the window at worst."""
    stale = staleness_by_window(1)
    assert stale["p50_s"] == sorted(stale["p50_s"])
    window_s, p50_s, p99_s = (stale[name][-1] for name in ("window_s", "p50_s", "p99_s"))
    assert window_s == 60
    assert 0.4 * window_s < p50_s < 0.7 * window_s
    assert p99_s < window_s + 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "low", "high", "by"),
    [
        ("stream", 950, 1000, "partition"),
        ("unguarded", 500, 500, "partition"),
        ("count", 1000, 1000, "partition"),
        ("transaction", 15, 60, "conflicts"),
        ("optimistic", 40, 140, "conflicts"),
        ("powertools", 100, 150, "aggregator"),
        ("marker", 30, 50, "aggregator"),
    ],
)
def test_a_hot_post_has_a_ceiling_on_every_path(name, low, high, by):
    """A partition's write units, conflicts, or one invocation at a time: whichever comes first."""
    found = ceiling(name, 2.0, 1)
    assert low <= found.likes_per_second <= high
    assert found.by == by


@pytest.mark.usefixtures("small")
def test_drift_is_told_by_fault():
    """Blind counting drifts with each kind, the product with none."""
    assert set(drift_by_fault("stream", "social", 1000.0, 1).values()) == {0}
    assert all(drift > 0 for drift in drift_by_fault("blind", "social", 1000.0, 1).values())


def test_refused_requests_are_paid_by_those_that_went_through():
    """Four write units all the same, but more HTTP requests and more time of the function."""
    crowded = run(PATHS["transaction"], operations("viral", 200, 1000.0, 1), 2.0, 1)
    usage = usage_of(crowded)
    assert crowded.accepted < 100
    assert usage.write_units == 4.0
    assert usage.requests == 200 / crowded.accepted
    assert usd_per_million(usage)["http_api"] == pytest.approx(usage.requests)


def test_a_series_is_rounded_for_reading(vote):
    """The break-even as well, where there is one."""
    rounded = dataclasses.replace(vote, cost_by_posts=CostSeries([1.0], {"stream": [1.23456]}, 1.23456)).figures()
    assert rounded["series"]["cost_by_posts"] == {
        "x": [1.0],
        "usd_per_million_likes": {"stream": [1.2346]},
        "break_even": 1.2346,
    }
