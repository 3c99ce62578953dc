"""What the demo does: likes and unlikes, seeded, so that a run can be repeated."""

import itertools
import random
from dataclasses import dataclass

UNLIKES = 0.15
REPEATED = 0.05
CONTESTED = 0.05


@dataclass(frozen=True, slots=True)
class Operation:
    """One request: a user likes a post, or takes the like back."""

    like: bool
    post: int
    """From 0, the most popular one."""
    user: int


def workload(posts: int, users: int, size: int, seed: int) -> list[Operation]:
    """Return `size` operations.

    The n-th post gets 1/n as many as the first (Zipf's law, as popularity mostly goes). Of the operations, about 15 %
    take a like back, 5 % are sent twice, and 5 % are followed at once by their opposite, so that both are under way
    at the same time and either may come last.
    """
    rng = random.Random(seed)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, posts + 1)))
    liked: dict[int, set[int]] = {post: set() for post in range(posts)}
    operations: list[Operation] = []
    while len(operations) < size:
        post = rng.choices(range(posts), cum_weights=weights)[0]
        if liked[post] and rng.random() < UNLIKES:
            operation = Operation(like=False, post=post, user=rng.choice(sorted(liked[post])))
            liked[post].discard(operation.user)
        else:
            operation = Operation(like=True, post=post, user=rng.randrange(users))
            liked[post].add(operation.user)
        operations.append(operation)
        luck = rng.random()
        if luck < REPEATED:
            operations.append(operation)
        elif luck < REPEATED + CONTESTED:
            operations.append(Operation(like=not operation.like, post=post, user=operation.user))
    return operations[:size]
