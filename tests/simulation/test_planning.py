"""Plans against traffic that is played out like by like.

Ten minutes of 10,000 likes a second, as `make traffic` plays them, and less of other traffics.
"""

from pathlib import Path

import pytest

from simulation.traffic import TOLERANCE, Measured, simulate
from tallyctl import planning
from tallyctl.planning import Traffic, plan

DOCUMENT = Path(__file__).parents[2] / "docs" / "comparison.md"
TRAFFICS = {
    "social, a month old": (Traffic(10_000), 15),
    "social, a longer window": (Traffic(10_000, likes_kept=0, batch_window_s=10), 40),
    "social, no window": (Traffic(10_000, likes_kept=0, batch_window_s=0), 15),
    "social, steep": (Traffic(10_000, likes_kept=0, skew=1.3), 15),
    "no favourites": (Traffic(10_000, likes_kept=0, skew=0), 15),
    "vote": (Traffic(10_000, likes_kept=0, posts=10), 15),
    "viral": (Traffic(10_000, likes_kept=0, posts=1), 15),
    "small batches": (Traffic(10_000, likes_kept=0, batch_size=100), 15),
    "small": (Traffic(20, likes_kept=0), 1200),
    "sleepy": (Traffic(0.5, likes_kept=0), 20_000),
}


def off(traffic, seconds, seed):
    """Return how far each planned figure is from the played one."""
    planned = plan(traffic)
    figures = simulate(planned, seconds, seed).beside(planned)
    return {name: expected / found - 1 for name, (expected, found) in figures.items()}


def test_ten_minutes_of_ten_thousand_likes_a_second_come_as_planned():
    """Within ten per cent; and docs/comparison.md states both, digit by digit."""
    planned = plan(Traffic(10_000, likes_kept=0))
    measured = simulate(planned, 600, seed=1)
    figures = measured.beside(planned)
    assert not {name: pair for name, pair in figures.items() if abs(pair[0] / pair[1] - 1) > TOLERANCE}
    document = DOCUMENT.read_text()
    assert f"{measured.likes:,} likes" in document
    for name, unit, digits in (
        ("parents a batch", "", 1),
        ("write units a second", "", 0),
        ("staleness p50", " (s)", 3),
        ("staleness p99", " (s)", 3),
    ):
        expected, found = (f"{value:,.{digits}f}" for value in figures[name])
        assert f"| {name}{unit} | {expected} | {found} |" in document


@pytest.mark.parametrize("name", TRAFFICS)
def test_a_plan_is_within_ten_percent_of_the_traffic_played_out(name):
    """Parents a batch, write units, calls of the function, staleness p50 and p99."""
    wrong = {figure: share for figure, share in off(*TRAFFICS[name], seed=7).items() if abs(share) > TOLERANCE}
    assert not wrong


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (("distinct", lambda posts, likes: min(likes, sum(post.posts for post in posts))), "parents a batch"),
        (("PARENTS_PER_SECOND", 250), "staleness p99"),
        (("STREAM_LAG_S", 0.3), "staleness p50"),
        (("spread", lambda posts, _: posts), "calls a second"),
    ],
    ids=["each like a parent", "slow writes", "slow stream", "a hot post in one shard"],
)
def test_a_plan_by_a_wrong_formula_is_found(monkeypatch, planted, found):
    """The simulation does not take its answers from the plan."""
    traffic = Traffic(10_000, likes_kept=0, posts=10 if found == "calls a second" else 100_000)
    right = plan(traffic)
    measured = simulate(right, 20, seed=7)
    monkeypatch.setattr(planning, *planted)
    expected, played = measured.beside(plan(traffic))[found]
    assert abs(expected / played - 1) > TOLERANCE


def test_the_same_seed_plays_the_same():
    """Another one does not."""
    planned = plan(Traffic(50, likes_kept=0))
    first, again, other = (simulate(planned, 20, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_every_like_is_counted_once():
    """As many waits as likes."""
    measured = simulate(plan(Traffic(200, likes_kept=0, batch_size=50)), 30, seed=3)
    assert measured.likes == sum(measured.waits.values()) == pytest.approx(6000, rel=0.05)


def test_the_staleness_is_a_quantile_of_the_likes():
    """Ninety likes of 10 ms and ten of 1 s."""
    measured = Measured(0, 1, waits={10: 90, 1000: 10})
    assert measured.staleness(0.5) == measured.staleness(0.9) == pytest.approx(0.0105)
    assert measured.staleness(0.91) == measured.staleness(0.99) == pytest.approx(1.0005)
