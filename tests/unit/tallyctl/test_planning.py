"""What a traffic takes: each formula by figures worked out by hand, and what must hold between them."""

import itertools
import json
import math
import random
import re
from pathlib import Path

import pytest

from builders import SHARD
from tallyctl.comparison.costs import item_size, read_units, write_units
from tallyctl.comparison.published import INVOKE_S, PARENTS_PER_SECOND
from tallyctl.errors import TallyctlError
from tallyctl.planning import (
    GROUPING_S_A_RECORD,
    MARK_BYTES,
    SECONDS_A_MONTH,
    STREAM_LAG_S,
    Group,
    Traffic,
    Units,
    batching,
    capacity,
    distinct,
    http_usd,
    must_prewarm,
    parent_bytes,
    partitions_by_throughput,
    plan,
    popularity,
    spread,
    stored_bytes,
    units,
)
from tallystream.counters import mark_name

TEMPLATE = Path(__file__).parents[3] / "template.yaml"


@pytest.fixture(scope="module")
def social():
    """10,000 likes a second on 100,000 posts, the newest table."""
    return plan(Traffic(10_000, likes_kept=0))


# Parents of a batch.


@pytest.mark.parametrize("skew", [0, 0.5, 1, 1.3, 2])
@pytest.mark.parametrize("posts", [1, 7, 200, 201, 100_000])
def test_the_groups_hold_all_posts_and_all_likes(posts, skew):
    """No post is lost at the border between the head and the groups, and shares are 1 in sum."""
    groups = popularity(posts, skew)
    assert sum(group.posts for group in groups) == posts
    assert math.fsum(group.posts * group.share for group in groups) == pytest.approx(1)
    assert all(group.share >= after.share * (1 - 1e-9) for group, after in itertools.pairwise(groups))


@pytest.mark.parametrize("skew", [0, 0.5, 1, 1.3, 2])
@pytest.mark.parametrize("likes", [1, 100, 10_000, 1_000_000])
def test_grouping_posts_costs_less_than_a_thousandth(skew, likes):
    """Against the sum over each of 100,000 posts."""
    weights = [rank**-skew for rank in range(1, 100_001)]
    whole = math.fsum(weights)
    exact = math.fsum(-math.expm1(-likes * weight / whole) for weight in weights)
    assert distinct(popularity(100_000, skew), likes) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("likes", [1, 10, 500, 10_000])
def test_a_fixed_number_of_likes_has_less_than_half_a_parent_more(likes):
    """1 - (1 - p) ** n, summed, is what the exponential is short of by 0.37 at most."""
    posts = popularity(150, 1)
    fixed = math.fsum(post.posts * (1 - (1 - post.share) ** likes) for post in posts)
    assert 0 <= fixed - distinct(posts, likes) <= 0.37


def test_a_trillion_posts_are_no_more_work():
    """The groups grow with the logarithm of the posts."""
    assert len(popularity(10**12, 1)) < 1000


def test_a_post_in_several_shards_is_a_parent_in_each():
    """With enough likes each of its shards has some."""
    assert distinct([Group(1, 1.0, shards=3)], 1000) == pytest.approx(3)
    assert distinct([Group(1, 1.0, shards=3)], 0.001) == pytest.approx(0.001, rel=1e-2)


@pytest.mark.parametrize(("share", "shards"), [(0.01, 1), (0.1, 1), (0.1001, 2), (0.25, 3), (1.0, 10)])
def test_a_post_is_spread_over_as_many_shards_as_its_peak_takes(share, shards):
    """1,000 write units a partition, of 10,000 likes a second at the peak."""
    (post,) = spread([Group(1, share)], Traffic(5000, peak_factor=2))
    assert post.shards == shards
    (dearer,) = spread([Group(1, share)], Traffic(5000, peak_factor=2, like_bytes=1025))
    assert dearer.shards == math.ceil(20 * share)


# Batches.


def test_a_cycle_is_the_window_and_the_invocation_that_its_parents_take():
    """The fixed point, on shards that are alike."""
    traffic = Traffic(1000, skew=0, batch_window_s=5)
    done = batching(traffic, popularity(traffic.posts, 0), 1000, 10)
    likes = 100 * done.cycle_s
    parents = 10_000 * -math.expm1(-likes / 10_000)
    assert done.parents == pytest.approx(parents, rel=1e-6)
    assert done.records == pytest.approx(likes + parents, rel=1e-6)
    taken = INVOKE_S + GROUPING_S_A_RECORD * (likes + parents) + parents / PARENTS_PER_SECOND
    assert done.invocation_s == pytest.approx(taken, rel=1e-6)
    assert done.cycle_s == pytest.approx(5 + taken, rel=1e-6)
    assert (done.fills, done.keeps_up) == (False, True)
    assert done.parents_per_second == pytest.approx(10 * parents / done.cycle_s)


@pytest.mark.parametrize("shards", [1, 4])
def test_a_full_batch_ends_the_window(shards):
    """Then the cycle is as long as so many records take; shards without a post do not share in it."""
    traffic = Traffic(1000, posts=1, batch_window_s=60, batch_size=500)
    done = batching(traffic, popularity(1, 0), 1000, shards)
    assert done.records == pytest.approx(500)
    assert done.cycle_s == pytest.approx(499 / 1000)
    assert (done.fills, done.keeps_up) == (True, True)


def test_without_a_window_records_wait_for_the_next_look_at_the_shard():
    """Lambda looks four times a second, so a window of 0 is one of 0.25 s."""
    none, quarter = (plan(Traffic(10, batch_window_s=window_s)) for window_s in (0, 0.25))
    assert none.average == quarter.average


def test_a_batch_that_takes_longer_than_the_next_takes_to_fill_is_told():
    """Then the iterator age grows for ever, and no figure for the staleness would be true."""
    planned = plan(Traffic(10_000, batch_size=10, skew=0, likes_kept=0))
    assert not planned.peak.keeps_up
    figures = planned.figures()
    assert (figures["keeps_up"], figures["staleness_peak_p50_s"], figures["staleness_peak_p99_s"]) == (
        False,
        None,
        None,
    )


def test_few_likes_are_a_batch_each_and_the_tally_s_change_another():
    """The mapping has no filter, so the change of the tally calls the function once more."""
    done = batching(Traffic(0.001), popularity(100_000, 1), 0.001, 4)
    assert done.parents == pytest.approx(1, rel=1e-3)
    assert done.calls_per_second == pytest.approx(0.002, rel=1e-2)


def test_hot_posts_are_one_parent_a_batch():
    """Ten posts on many shards: never less than one parent in a batch with likes, and no calls where none are."""
    done = plan(Traffic(10_000, posts=10)).average
    assert done.parents == pytest.approx(1)
    assert done.calls_per_second < 40 / 2


def test_shards_with_a_hot_post_get_others_up_to_an_even_share():
    """One post with 0.3 of the likes on two shards: the other posts fill its shard up to a half."""
    hot, cold = Group(1, 0.3), Group(7000, 0.0001)
    traffic = Traffic(500, peak_factor=5, posts=7001, batch_window_s=300, batch_size=1000)
    done = batching(traffic, [hot, cold], 500, 2)
    # Hot shard: 250 likes a second, 2,000 of the quiet posts; the other: 250, and 5,000 of them.
    ends = [
        next(n / 1000 for n in range(5000) if n / 4 + own + posts * -math.expm1(-0.05 * n / 1000) >= 1000)
        for own, posts in ((1, 2000), (0, 5000))
    ]
    assert done.cycle_s == pytest.approx(ends[0], rel=0.01)
    assert done.parents_per_second == pytest.approx(
        sum(
            (own + posts * -math.expm1(-0.05 * end)) / end
            for end, own, posts in zip(ends, (1, 0), (2000, 5000), strict=True)
        ),
        rel=0.01,
    )


def test_posts_of_more_than_half_a_partition_share_no_shard():
    """11, 6, 4, 3, 3, 2, 2, 2, 2, 2 shards for ten posts at 30,000 likes a second, though 31 partitions carry that."""
    planned = plan(Traffic(10_000, posts=10, likes_kept=0))
    assert (planned.partitions, planned.shards) == (31, 37)
    assert planned.average.parents == pytest.approx(1)


def test_the_staleness_of_one_quiet_post_is_even_over_the_window():
    """From the lag and the call alone to a whole cycle more."""
    stale = batching(Traffic(50, posts=1, batch_window_s=10), popularity(1, 0), 50, 1).staleness
    least = STREAM_LAG_S + INVOKE_S
    assert stale.mean == pytest.approx(least + 5, rel=0.01)
    assert stale.p50 == pytest.approx(least + 5, rel=0.02)
    assert stale.p99 == pytest.approx(least + 9.9, rel=0.02)


def test_many_parents_make_the_last_ones_stale():
    """What an invocation takes for its parents is in the 99th percentile, beside the window."""
    traffic = Traffic(400, skew=0, posts=10**9)
    done = batching(traffic, popularity(10**9, 0), 400, 1)
    assert done.invocation_s > 3
    # Parents are written in the order of their likes, so each like waits for about as long.
    assert done.staleness.p50 == pytest.approx(done.cycle_s - 0.13 * done.cycle_s, rel=0.1)
    assert done.staleness.p99 < done.cycle_s + STREAM_LAG_S + 2 * INVOKE_S


def test_a_like_waits_for_the_parents_before_the_first_like_of_its_own():
    """Against batches of one shard that are drawn, with posts that come more than once and in any order."""
    done = batching(Traffic(400, skew=0, posts=500), popularity(500, 0), 400, 1)
    rng = random.Random(1)
    waits = []
    for _ in range(200):
        came = sorted((rng.uniform(0, done.cycle_s), rng.randrange(500)) for _ in range(round(400 * done.cycle_s)))
        place = {post: number for number, post in enumerate(dict.fromkeys(post for _, post in came), start=1)}
        fixed = STREAM_LAG_S + INVOKE_S + GROUPING_S_A_RECORD * done.records + done.cycle_s
        waits += [fixed - at + place[post] / PARENTS_PER_SECOND for at, post in came]
    waits.sort()
    assert done.staleness.mean == pytest.approx(sum(waits) / len(waits), rel=0.01)
    assert done.staleness.p50 == pytest.approx(waits[len(waits) // 2], rel=0.01)
    assert done.staleness.p99 == pytest.approx(waits[len(waits) * 99 // 100], rel=0.01)


def test_a_longer_window_is_cheaper_and_staler():
    """The one knob there is turns both."""
    windows = [plan(Traffic(10_000, batch_window_s=window_s)) for window_s in (1, 2, 5, 20)]
    cost = [planned.units.write for planned in windows]
    stale = [planned.average.staleness.p50 for planned in windows]
    assert cost == sorted(cost, reverse=True)
    assert stale == sorted(stale)
    assert len(set(cost)) == len(set(stale)) == 4


# Capacity.


@pytest.mark.parametrize(("size", "write", "read"), [(1, 1, 0.5), (1024, 1, 0.5), (1025, 2, 0.5), (4097, 5, 1)])
def test_units_are_rounded_up(size, write, read):
    """One a KB written, half a unit for 4 KB read with eventual consistency."""
    assert (write_units(size), read_units(size, consistent=False)) == (write, read)


def test_a_mark_has_the_size_that_the_plan_takes_it_for():
    """By DynamoDB's rules for sizes, of a mark such as the product writes."""
    mark = {"M": {"seq": {"S": "1" * 40}, "at": {"N": "1769432789"}}}
    assert item_size({mark_name(SHARD): mark}) == MARK_BYTES


@pytest.mark.parametrize(("likes", "shards", "marks"), [(1e-9, 1, 1), (1, 1, 7.25), (1, 3, 21.75)])
def test_a_busy_post_carries_a_mark_for_each_shard_of_the_last_25_hours(likes, shards, marks):
    """Shards live four hours; a post that is spread has as many for each shard; a quiet one has its one."""
    size = parent_bytes(Traffic(likes, post_bytes=300), Group(1, 1.0, shards))
    assert size == pytest.approx(300 + marks * MARK_BYTES, rel=1e-3)


def test_marks_that_push_a_post_over_a_unit_are_in_the_bill():
    """372 bytes and the marks are more than 1 KB: each count is then two units."""
    small, large = (plan(Traffic(100, posts=20, post_bytes=size)) for size in (371, 372))
    assert small.units.write - 100 == pytest.approx(small.average.parents_per_second)
    assert large.units.write - 100 == pytest.approx(2 * small.average.parents_per_second, rel=1e-6)


@pytest.mark.parametrize(
    ("write", "read", "partitions"),
    [(0, 0, 1), (1000, 0, 1), (1001, 0, 2), (0, 3000, 1), (500, 1500, 1), (1000, 3000, 2), (39_999, 4, 41)],
)
def test_partitions_carry_a_thousand_writes_and_three_thousand_reads(write, read, partitions):
    """Rounded up, and never none."""
    assert partitions_by_throughput(Units(write, read)) == partitions


@pytest.mark.parametrize("traffic", [Traffic(10_000, likes_kept=0), Traffic(3000, likes_kept=0, skew=0.5)])
def test_the_partitions_are_the_fewest_that_carry_the_peak(traffic):
    """With one less, what the parents take then would not fit."""
    planned = plan(traffic)
    posts = spread(popularity(traffic.posts, traffic.skew), traffic)
    assert partitions_by_throughput(planned.units_peak) <= planned.partitions == planned.shards
    fewer = planned.partitions - 1
    peak_rate = traffic.likes_per_second * traffic.peak_factor
    taken = units(traffic, posts, peak_rate, batching(traffic, posts, peak_rate, fewer).parent_units_per_second)
    assert partitions_by_throughput(taken) > fewer


def test_partitions_hold_ten_gigabytes():
    """Of items with 100 bytes of overhead each; likes kept are those of a month unless they are given."""
    kept = plan(Traffic(1, likes_kept=10**9, like_bytes=100, posts=1))
    assert kept.partitions_by_size == math.ceil((200 * 10**9 + 1000) / (10 * 2**30)) == 19
    assert (kept.partitions, kept.shards) == (19, 19)
    month = plan(Traffic(1000, like_bytes=100, posts=1))
    assert month.partitions_by_size == math.ceil(1000 * SECONDS_A_MONTH * 200 / (10 * 2**30))


def test_a_new_table_has_four_shards_for_its_four_thousand_units():
    """However little comes."""
    planned = plan(Traffic(1))
    assert (planned.partitions, planned.shards) == (1, 4)


@pytest.mark.parametrize(
    ("write", "read", "needed"), [(4000, 12_000, False), (4000.1, 0, True), (0, 12_000.1, True), (1, 1, False)]
)
def test_only_more_than_a_new_table_takes_is_prewarmed(write, read, needed):
    """4,000 write units, 12,000 read units."""
    assert must_prewarm(Units(write, read)) is needed


def test_prewarming_looks_at_the_peak():
    """The average would fit."""
    assert [plan(Traffic(1000, posts=1, peak_factor=factor)).prewarm for factor in (3, 5)] == [False, True]


def test_the_hottest_post_takes_a_partition_for_each_thousand_of_its_likes():
    """One viral post: N of `key#0..N` is what its traffic and size take."""
    planned = plan(Traffic(1000, posts=1, peak_factor=3, like_bytes=1500))
    assert planned.hottest.likes_per_second == 3000
    assert planned.hottest.write_units_per_second == pytest.approx(6000, rel=0.01)
    assert planned.hottest.tally_writes_per_second == pytest.approx(6 / planned.peak.cycle_s)
    assert planned.hottest.transaction_tally_units_per_second == 6000
    assert planned.key_shards == 7


def test_reads_of_the_hottest_post_need_key_shards_too():
    """300 read units of each 6,000 reads, half a unit each."""
    planned = plan(Traffic(1, posts=1, peak_factor=2, reads_per_second=9000))
    assert planned.hottest.read_units_per_second == 9000
    assert planned.key_shards == 4


def test_a_post_that_is_no_hotter_than_a_partition_needs_one_key():
    """The long tail of a small network."""
    assert plan(Traffic(100)).key_shards == 1


# Cost.


def test_a_vote_is_one_unit_a_like_and_a_long_tail_less_than_two(social):
    """The bounds of the comparison; a transaction is four."""
    vote = plan(Traffic(1000, posts=10, likes_kept=0))
    assert 1 < vote.figures()["write_units_per_like"] <= 1.02
    assert 1 < social.figures()["write_units_per_like"] < 2
    assert social.transaction_units.write == 40_000


def test_a_dearer_item_is_dearer_in_both_paths():
    """Two KB of like and three of post: ten units in a transaction, two and the counts in the stream."""
    planned = plan(Traffic(100, posts=1, like_bytes=1025, post_bytes=2049))
    assert planned.transaction_units.write == 1000
    assert planned.units.write == pytest.approx(200 + 3 * planned.average.parents_per_second)


@pytest.mark.parametrize(("peak_factor", "cheaper"), [(1, "provisioned"), (3.4, "provisioned"), (3.5, "on-demand")])
def test_on_demand_is_cheaper_from_three_and_a_half_times_the_average_on(peak_factor, cheaper):
    """$0.625 a million against $0.00065 an hour: 0.00225 / 0.00065 is 3.46."""
    found = capacity(Units(100, 50), Units(100 * peak_factor, 50 * peak_factor))
    assert found.cheaper == cheaper
    assert found.break_even_peak_factor == pytest.approx(0.625e-6 * 3600 / 0.00065)
    assert found.on_demand == pytest.approx(730 * 3600 * (100 * 0.625e-6 + 50 * 0.125e-6))
    assert found.provisioned_for_peak == pytest.approx(730 * peak_factor * (100 * 0.00065 + 50 * 0.00013))
    assert found.provisioned_auto_scaling == pytest.approx(730 * (100 * 0.00065 + 50 * 0.00013) / 0.7)


def test_http_requests_are_cheaper_beyond_300_million():
    """The first tier stays at its price."""
    assert http_usd(1e6) == pytest.approx(1)
    assert http_usd(300e6) == pytest.approx(300)
    assert http_usd(400e6) == pytest.approx(390)


def test_each_stored_item_has_a_hundred_bytes_more():
    """A thousand likes, and ten posts that are hardly liked any more, so that each has one mark: 1,010 items."""
    traffic = Traffic(1e-6, posts=10, likes_kept=1000, like_bytes=100, post_bytes=300)
    posts = spread(popularity(traffic.posts, traffic.skew), traffic)
    assert stored_bytes(traffic, posts) == pytest.approx(1000 * 200 + 10 * (400 + 90), rel=0.0001)


def test_likes_of_two_write_units_take_twice_the_partitions():
    """Above 1 KB a like is charged as two, and a partition carries half as many."""
    small, large = (plan(Traffic(10_000, posts=10, likes_kept=0, like_bytes=size)) for size in (1000, 1500))
    assert (small.partitions_by_throughput, large.partitions_by_throughput) == (31, 61)


def test_storage_is_paid_with_its_recovery():
    """200 million likes of 200 bytes with their overhead: $0.25 a GB, and $0.20 for point-in-time recovery."""
    planned = plan(Traffic(1, posts=1, likes_kept=200_000_000))
    for path in (planned.usd_stream, planned.usd_transaction):
        assert path["dynamodb_storage"] == pytest.approx(0.45 * 40e9 / 2**30, rel=1e-6)


def test_the_cost_of_each_path_is_the_sum_of_its_parts():
    """One like and one read a second, worked out by hand."""
    planned = plan(Traffic(1, reads_per_second=1, likes_kept=0, posts=1))
    month = 730 * 3600
    writes = planned.units.write
    assert planned.usd_stream["dynamodb_writes"] == pytest.approx(month * writes * 0.625e-6)
    assert planned.usd_transaction["dynamodb_writes"] == pytest.approx(month * 4 * 0.625e-6)
    assert planned.usd_stream["dynamodb_reads"] == pytest.approx(month * 0.5 * 0.125e-6)
    assert planned.usd_stream["http_api"] == pytest.approx(2 * month * 1e-6)
    calls = planned.average.calls_per_second * month
    a_call = 0.2e-6 + planned.average.invocation_s * 1769 / 1024 * 0.0000133334
    assert planned.usd_stream["lambda_aggregator"] == pytest.approx(calls * a_call)
    assert "lambda_aggregator" not in planned.usd_transaction
    for path, like_s in ((planned.usd_stream, 0.01255), (planned.usd_transaction, 0.0303)):
        busy_s = like_s + 0.01255
        assert path["lambda_api"] == pytest.approx(month * (2 * 0.2e-6 + busy_s * 0.5 * 0.0000133334), rel=1e-3)
    figures = planned.figures()
    assert figures["usd_per_month"]["stream"] == pytest.approx(sum(planned.usd_stream.values()), abs=0.01)
    assert figures["usd_per_month"]["transaction"] == pytest.approx(sum(planned.usd_transaction.values()), abs=0.01)


# The plan as a whole.


def test_the_figures_have_the_keys_that_others_read(social):
    """The contract of design section 10; JSON takes all of it, infinite numbers not among it."""
    figures = json.loads(json.dumps(social.figures(), allow_nan=False))
    assert isinstance(figures["write_units_per_second"], float)
    assert isinstance(figures["staleness_s"], float)
    assert isinstance(figures["partitions"], int)
    assert isinstance(figures["key_shards"], int)
    assert figures["prewarm"] is True
    assert set(figures["usd_per_month"]) == {"stream", "transaction"}
    assert figures["staleness_p50_s"] < figures["staleness_p99_s"]


def test_the_same_traffic_has_the_same_plan(social):
    """Nothing in it is drawn or timed."""
    assert plan(Traffic(10_000, likes_kept=0)) == social


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(1e-6),
        Traffic(1e8, peak_factor=1000, posts=10**12, skew=0),
        Traffic(1e8, posts=1),
        Traffic(1000, posts=10**12, skew=5),
        Traffic(10_000, batch_size=1, batch_window_s=0),
        Traffic(1000, posts=4, skew=0),
        Traffic(1000, like_bytes=400 * 1024, post_bytes=400 * 1024),
    ],
    ids=str,
)
def test_the_ends_of_what_is_allowed_have_a_plan(traffic):
    """Figures without rhyme do no harm: at least a parent a batch, at most one a like, and no endless number."""
    figures = plan(traffic).figures()
    json.dumps(figures, allow_nan=False)
    assert figures["parents_per_batch"] >= 0.99
    assert figures["parents_per_second"] <= traffic.likes_per_second + 0.01
    assert figures["partitions"] >= 1


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("likes_per_second", 0),
        ("likes_per_second", -1),
        ("likes_per_second", math.nan),
        ("likes_per_second", math.inf),
        ("posts", 0),
        ("skew", -0.1),
        ("skew", 6),
        ("peak_factor", 0.9),
        ("like_bytes", 0),
        ("post_bytes", 400 * 1024 + 1),
        ("batch_window_s", 301),
        ("reads_per_second", -1),
        ("batch_size", 10_001),
        ("likes_kept", -1),
    ],
)
def test_b40_nonsense_is_one_line_with_what_is_allowed(option, wrong):
    """The option is named as it is typed."""
    traffic = Traffic(**{"likes_per_second": 1, option: wrong})
    named = option.removesuffix("_s").replace("_", "-")
    with pytest.raises(TallyctlError, match=rf"^--{named} cannot be .*: give a number from .* to [^\n]*$"):
        plan(traffic)


def test_the_plan_is_for_the_batch_size_of_the_template():
    """A default that the template does not share would plan for something else."""
    assert re.search(r"^ +BatchSize: (\d+)$", TEMPLATE.read_text(), re.MULTILINE)[1] == str(Traffic(1).batch_size)
    window = re.search(
        r"^  BatchWindowSeconds:\n    Type: Number\n    Default: (\d+)$", TEMPLATE.read_text(), re.MULTILINE
    )
    assert float(window[1]) == Traffic(1).batch_window_s
