"""Who likes what, when: seeded operations in simulated time, so that a comparison can be repeated."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

VOTE_POSTS = 10
SOCIAL_POSTS = 100_000
CHURN_POSTS = 20
CHURN_USERS = 100
"""How many users each post of `churn` has; each of them likes and unlikes it in turn."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request: a user likes a post, or takes the like back. Each changes something: nobody likes twice in a row."""

    at: float
    """Seconds since the start."""
    like: bool
    post: str
    user: str


def vote(size: int, rng: random.Random) -> list[tuple[int, int]]:
    """A national vote: ten parents that get about as many likes each."""
    return [(rng.randrange(VOTE_POSTS), user) for user in range(size)]


def social(size: int, rng: random.Random) -> list[tuple[int, int]]:
    """A social network: 100,000 posts, of which the n-th gets 1/n as many likes as the first (Zipf's law)."""
    weights = list(itertools.accumulate(1 / rank for rank in range(1, SOCIAL_POSTS + 1)))
    return [(post, user) for user, post in enumerate(rng.choices(range(SOCIAL_POSTS), cum_weights=weights, k=size))]


def viral(size: int, rng: random.Random) -> list[tuple[int, int]]:  # noqa: ARG001 - as the other workloads are called
    """One post that everybody likes."""
    return [(0, user) for user in range(size)]


def churn(size: int, rng: random.Random) -> list[tuple[int, int]]:
    """The same users like and unlike: half of the operations or nearly so take a like back."""
    return [(rng.randrange(CHURN_POSTS), rng.randrange(CHURN_USERS)) for _ in range(size)]


WORKLOADS: dict[str, Callable[[int, random.Random], list[tuple[int, int]]]] = {
    "vote": vote,
    "social": social,
    "viral": viral,
    "churn": churn,
}
"""Each draws pairs of a post and a user; a pair's first operation is a like, its second an unlike, and so on."""


def operations(workload: str, size: int, rate: float, seed: int) -> list[Operation]:
    """Return `size` operations of a workload, `rate` of them a second, evenly spaced.

    Raises:
        KeyError: there is no such workload.
    """
    liked: set[tuple[int, int]] = set()
    made = []
    for number, pair in enumerate(WORKLOADS[workload](size, random.Random(f"{workload} {seed}"))):
        liked ^= {pair}
        made.append(Operation(number / rate, pair in liked, _id(pair[0]), _id(pair[1])))
    return made


def spread(posts: int, size: int, rate: float, seed: int) -> list[Operation]:
    """Return `size` likes that are spread evenly over so many posts, and come by chance, `rate` a second on average."""
    rng = random.Random(f"spread {seed}")
    at, made = 0.0, []
    for user in range(size):
        made.append(Operation(at, like=True, post=_id(rng.randrange(posts)), user=_id(user)))
        at += rng.expovariate(rate)
    return made


def _id(number: int) -> str:
    """Return an id as long as a UUID: ids are most of what a like's item holds, and reads are charged by its size."""
    return f"00000000-0000-4000-8000-{number:012d}"
