"""The seeded workloads: who likes what, when."""

from collections import Counter
from itertools import pairwise

import pytest

from tallyctl.comparison.workloads import WORKLOADS, operations, spread


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_same_seed_gives_the_same_operations(workload):
    """A figure can be had again, and another seed gives others."""
    assert operations(workload, 500, 100.0, 1) == operations(workload, 500, 100.0, 1)
    if workload != "viral":
        assert operations(workload, 500, 100.0, 1) != operations(workload, 500, 100.0, 2)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_operation_changes_something(workload):
    """Nobody likes what he likes already, or takes back what is not there."""
    liked = set()
    for operation in operations(workload, 5000, 100.0, 1):
        assert operation.like is ((operation.post, operation.user) not in liked)
        liked ^= {(operation.post, operation.user)}


def test_operations_come_at_the_rate():
    """The i-th comes at i / rate."""
    assert [operation.at for operation in operations("vote", 4, 8.0, 1)] == [0.0, 0.125, 0.25, 0.375]


def test_a_vote_has_ten_posts_with_about_as_many_likes():
    """Ten parents share the likes."""
    likes = Counter(operation.post for operation in operations("vote", 10_000, 1.0, 1))
    assert len(likes) == 10
    assert max(likes.values()) < 1.2 * min(likes.values())


def test_a_social_network_has_a_long_tail():
    """The first post has some 8 % of the likes, and thousands of posts have one."""
    likes = Counter(operation.post for operation in operations("social", 10_000, 1.0, 1))
    assert 700 < max(likes.values()) < 950
    assert sum(count == 1 for count in likes.values()) > 3000


def test_a_viral_post_is_alone():
    """Everybody likes the one post, each user once."""
    made = operations("viral", 1000, 1.0, 1)
    assert len({operation.post for operation in made}) == 1
    assert len({operation.user for operation in made}) == 1000


def test_churn_takes_likes_back():
    """A good part of the operations are unlikes, once the users have liked."""
    made = operations("churn", 10_000, 1.0, 1)
    assert 0.4 < sum(not operation.like for operation in made) / len(made) < 0.5


def test_spread_likes_come_by_chance_at_the_rate():
    """So many posts share the likes, and the times are as far apart as the rate says, on average."""
    made = spread(7, 5000, 10.0, 1)
    assert len({operation.post for operation in made}) == 7
    assert 450 < made[-1].at < 550
    assert all(earlier.at < later.at for earlier, later in pairwise(made))
