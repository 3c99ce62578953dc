"""Any history of likes, delivered in any way that Lambda may deliver it, ends at the number of likes that are there."""

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import like, unlike, windowed
from fakes import LOST, FaultyDynamoDb, batches_on, client_error, deliver, reported

POSTS = ("a", "b", "c")
SHARDS = ("shardId-0", "shardId-1")
FAULTS = {
    "throttled": client_error("ThrottlingException"),
    "lost": LOST,
    "raised": client_error("AccessDeniedException"),
}
SLOW = settings(deadline=None, max_examples=200)

toggles = st.lists(st.tuples(st.sampled_from(POSTS), st.integers(0, 3)), min_size=1, max_size=24)
"""Each likes if the user does not like the post, and unlikes if it does."""

deliveries = st.lists(
    st.fixed_dictionaries(
        {
            "shard": st.sampled_from((0, 1)),
            "size": st.integers(1, 12),
            "restart": st.none() | st.integers(0, 5),
            "twice": st.booleans(),
            "stutter": st.booleans(),
            "faults": st.dictionaries(st.sampled_from(POSTS), st.sampled_from(sorted(FAULTS)), max_size=3),
        }
    ),
    max_size=16,
)
"""What the poller of a shard does next: start again at an earlier checkpoint or go on, take so many records, and meet
faults that last for the whole delivery. Twice: the same delivery again, its answer ignored, as by a zombie. Stutter:
each record stands in the batch a second time, and not in order."""


def history(steps, shard_of):
    """Return the likes at the end as (post, user), and each shard's records in their order.

    All the records of one like are in one shard; a post's likes may be in several.
    """
    likes, shards = set(), ([], [])
    for number, (post, user) in enumerate(steps, start=1):
        build = unlike if (post, user) in likes else like
        likes ^= {(post, user)}
        shards[shard_of(post, user)].append(build(number, post, f"u{user}"))
    return likes, shards


class Poller:
    """What Lambda does with one shard: it delivers from its checkpoint on, and moves it as the answers say."""

    def __init__(self, table, batches, shard, records):
        self._table, self._batches, self._shard, self._records = table, batches, shard, records
        self.checkpoints = [0]

    def deliver(self, size, faults=(), *, stutter=False):
        """Deliver so many records from the checkpoint on; whatever Lambda takes for done moves the checkpoint."""
        start = self.checkpoints[-1]
        answer = self.invoke(start, start + size, faults, stutter=stutter)
        if answer is not None:
            self.checkpoints.append(answer)

    def restart(self, back):
        """Go back by so many checkpoints, as a poller does that lost the last ones."""
        del self.checkpoints[max(1, len(self.checkpoints) - back) :]

    def invoke(self, start, end, faults=(), *, stutter=False):
        """Invoke the product; return up to which record it is done, or None if it raised."""
        records = self._records[start:end]
        for post in POSTS:
            self._table.plant(post, [FAULTS[faults[post]]] * 20 if post in faults else [])
        event = windowed(*records, *(reversed(records) if stutter else ()), shard=self._shard)
        try:
            number = reported(deliver(self._batches, event))
        except type(FAULTS["raised"]):
            return None
        numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
        return start + (len(records) if number is None else numbers.index(number))

    def finish(self):
        """Deliver what is left, without faults."""
        self.deliver(len(self._records))
        assert self.checkpoints[-1] == len(self._records)


def after(steps, plan, shard_of):
    """Return each post's tally after a history delivered by a plan, and how many likes of it there are."""
    likes, shards = history(steps, shard_of)
    table = FaultyDynamoDb()
    for post in POSTS:
        table.add_post(post)
    batches = batches_on(table)
    pollers = [Poller(table, batches, *each) for each in zip(SHARDS, shards, strict=True)]
    for step in plan:
        poller = pollers[step["shard"]]
        if step["restart"] is not None:
            poller.restart(step["restart"])
        start = poller.checkpoints[-1]
        poller.deliver(step["size"], step["faults"], stutter=step["stutter"])
        if step["twice"]:
            poller.invoke(start, start + step["size"], step["faults"])
    for poller in pollers:
        poller.finish()
    return {post: table.tally(post) for post in POSTS}, {
        post: sum(liked == post for liked, _ in likes) for post in POSTS
    }


@SLOW
@given(toggles, deliveries)
def test_b01_b08_b09_any_delivery_of_any_history_counts_the_children(steps, plan):
    """Cut, failed, raised, lost, repeated, restarted and overlapping deliveries of two shards end at the truth."""
    tallies, truth = after(steps, plan, lambda _, user: user % 2)
    assert tallies == truth


@SLOW
@given(toggles, deliveries)
def test_one_busy_shard_counts_the_children(steps, plan):
    """The same with everything in one shard, where pairs that cancel out and checkpoints cross the most."""
    tallies, truth = after(steps, [{**step, "shard": 0} for step in plan], lambda *_: 0)
    assert tallies == truth


@settings(deadline=None, max_examples=150)
@given(toggles, st.lists(st.integers(1, 9), max_size=12), st.lists(st.integers(1, 9), max_size=12))
def test_b08_two_cuts_of_one_history_are_the_same(steps, cuts, others):
    """However a history is cut, and cut again in a replay from its beginning, the tallies are the same."""
    _, (records, _) = history(steps, lambda *_: 0)
    table = FaultyDynamoDb()
    for post in POSTS:
        table.add_post(post)
    poller = Poller(table, batches_on(table), SHARDS[0], records)
    seen = []
    for sizes in (cuts, others):
        poller.restart(len(poller.checkpoints))
        for size in sizes:
            poller.deliver(size)
        poller.finish()
        seen.append({post: table.tally(post) for post in POSTS})
    assert seen[0] == seen[1]
