"""The event source mapping's retry limit, in the simulated AWS."""

import pytest
from botocore.exceptions import ClientError

from fakes import client_error
from simulation.world import Piece, Schedule, World

RETRIES = 2
BAD = "1"
QUIET = Schedule(17, steps=0, posts=3, users=1, sdk_faults=(), invocation_faults=(), features=(), rate=0.0)


class Limited(World):
    """A world whose mapping has MaximumRetryAttempts 2 and no bisection, and in which one post can never be written."""

    def __init__(self, error):
        super().__init__(QUIET)
        self.error = error
        self.deliveries = []

    def update_item(self, TableName, **request):  # noqa: N803 - boto3's name
        """Fail every write of the bad post."""
        if request["Key"]["PK"]["S"] == f"POST#{BAD}":
            raise self.error
        return super().update_item(TableName, **request)

    def _in_any_order(self, function, items):
        """Take every item before the first error is raised, as the handler's pool does."""
        errors = []
        for item in items:
            try:
                function(item)
            except ClientError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return ()

    def _invoke(self, shard, event, *, calm):
        answer = super()._invoke(shard, event, calm=calm)
        posts = [entry["dynamodb"]["Keys"]["PK"]["S"].removeprefix("POST#") for entry in event["Records"]]
        self.deliveries.append((posts, None if answer is None else answer["batchItemFailures"]))
        return answer

    def _settle(self, shard, piece, answer, *, calm):
        """Retry what is left as one batch, at most so often: a reported failure is an attempt as a raised one is."""
        del calm
        left = piece.first
        if answer is not None:
            numbers = [entry["dynamodb"]["SequenceNumber"] for entry in shard.records]
            failed = [numbers.index(failure["itemIdentifier"]) for failure in answer["batchItemFailures"]]
            left = min(failed, default=piece.end)
        shard.position, shard.pieces = left, []
        if left == piece.end:
            return
        if piece.attempts == RETRIES:
            self._discard(shard, left, piece.end)
        else:
            shard.pieces = [Piece(left, piece.end, piece.attempts + 1)]


@pytest.mark.parametrize(
    ("error", "raises"),
    [(client_error("ProvisionedThroughputExceededException"), False), (client_error("AccessDeniedException"), True)],
    ids=["reported", "raised"],
)
def test_b17_what_always_fails_is_delivered_three_times_and_then_goes_to_the_failure_queue(error, raises):
    """Reported or raised, it has one try and two retries, and its neighbours are counted once.

    The embedded AWS cannot show this: it drops what is reported, and repeats without an end what is raised.
    """
    world = Limited(error)
    for post in ("0", BAD, "2"):
        world._toggle(post, "u")
    (shard,) = world.shards
    likes = [number for number, entry in enumerate(shard.records) if "LIKE" in entry["dynamodb"]["Keys"]["SK"]["S"]]
    end = len(shard.records)  # what the tallies' own changes bring to the stream comes behind
    shard.position, shard.pieces = likes[0], [Piece(likes[0], end)]
    while shard.position < end:
        assert world.deliver()
        assert len(world.deliveries) < 10, "delivered for ever"

    numbers = [shard.records[number]["dynamodb"]["SequenceNumber"] for number in likes]
    if raises:
        assert world.deliveries == [(["0", BAD, "2"], None)] * 3
    else:
        failure = [{"itemIdentifier": numbers[1]}]
        assert world.deliveries == [(["0", BAD, "2"], failure), *[([BAD, "2"], failure)] * 2]
    first = numbers[0] if raises else numbers[1]
    info = {"shardId": shard.id, "startSequenceNumber": first, "endSequenceNumber": numbers[2]}
    assert world.queue.messages == [{"DDBStreamBatchInfo": info}]
    assert [world.table.tally(post) for post in ("0", BAD, "2")] == [1, 0, 1]
    assert world.missed == {BAD: 1}
    world.check()
