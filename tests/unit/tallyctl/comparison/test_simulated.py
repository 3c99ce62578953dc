"""The client in simulated time: how long requests take, who is in whose way, and what a fault does."""

import pytest
from botocore.exceptions import ClientError

from tallyctl.comparison.metering import MeteredDynamoDb
from tallyctl.comparison.published import PUT_S, TRANSACTION_S
from tallyctl.comparison.simulated import Clock, Contention, Fault, Killed, SimulatedDynamoDb

LIKE = {"PK": {"S": "POST#p1"}, "SK": {"S": "LIKE#USER#u1"}}
ADD = {
    "Key": {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}},
    "UpdateExpression": "ADD likeTally :one",
    "ExpressionAttributeValues": {":one": {"N": "1"}},
}


@pytest.fixture
def client():
    """Give a client of an empty table, on a clock."""
    return SimulatedDynamoDb(MeteredDynamoDb(), Clock())


def tally(client):
    """Return the tally of p1; None if there is none."""
    return client.table.items.get(("POST#p1", "META"), {}).get("likeTally")


def code(call, **request):
    """Send a request that is refused, and return the error's code."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    return caught.value.response["Error"]["Code"]


def test_requests_take_their_time():
    """A write takes what one was measured to take, and a transaction what that takes."""
    clock = Clock()
    client = SimulatedDynamoDb(MeteredDynamoDb(), clock)
    client.put_item(Item=LIKE)
    client.transact_write_items(TransactItems=[{"Update": ADD}])
    assert clock.now == pytest.approx(PUT_S + TRANSACTION_S)
    assert client.round_trips == 2


def test_a_lost_answer_is_sent_again(client):
    """The SDK does not know that the first one was applied: an ADD counts twice."""
    client.fault = Fault("lost")
    client.update_item(**ADD)
    assert (tally(client), client.round_trips, client.fault) == ({"N": "2"}, 2, None)


def test_a_lost_refusal_is_refused_again(client):
    """What the SDK sees in the end is what the second try meets."""
    client.put_item(Item=LIKE)
    client.fault = Fault("lost")
    put = {"Item": LIKE, "ConditionExpression": "attribute_not_exists(PK)"}
    assert code(client.put_item, **put) == "ConditionalCheckFailedException"
    assert client.round_trips == 3


def test_a_throttle_outlasts_the_sdk_and_then_ends(client):
    """Three tries are refused, the next request's first one too, and then it goes through: counted once."""
    client.fault = Fault("throttled")
    assert code(client.update_item, **ADD) == "ThrottlingException"
    client.update_item(**ADD)
    assert (tally(client), client.round_trips, client.fault) == ({"N": "1"}, 5, None)


@pytest.mark.parametrize(("kind", "left"), [("killed_before", None), ("killed_after", {"N": "1"})])
def test_a_kill_comes_before_or_after_the_write(client, kind, left):
    """Nothing of the process goes on, whether the write was applied or not."""
    client.fault = Fault(kind)
    with pytest.raises(Killed):
        client.update_item(**ADD)
    assert tally(client) == left


def test_a_fault_waits_for_its_write(client):
    """The second write of p1 is struck: neither the first, nor a read, nor one of another post."""
    client.fault = Fault("killed_before", nth=1, partition="POST#p1")
    client.put_item(Item=LIKE)
    client.get_item(Key=LIKE)
    client.put_item(Item={**LIKE, "PK": {"S": "POST#p2"}})
    with pytest.raises(Killed):
        client.update_item(**ADD)


def test_transactions_at_the_same_time_conflict_on_the_item_they_share():
    """The second one is cancelled with a reason for the post alone, and goes through later."""
    clock = Clock()
    client = SimulatedDynamoDb(MeteredDynamoDb(), clock, Contention(0.02))
    first = [{"Put": {"Item": LIKE}}, {"Update": ADD}]
    second = [{"Put": {"Item": {**LIKE, "SK": {"S": "LIKE#USER#u2"}}}}, {"Update": ADD}]
    client.transact_write_items(TransactItems=first)
    clock.now = 0.01
    with pytest.raises(ClientError) as caught:
        client.transact_write_items(TransactItems=second)
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "TransactionConflict"]
    clock.now = 0.03
    client.transact_write_items(TransactItems=second)
    assert (client.conflicts, tally(client)) == (1, {"N": "2"})
    assert client.table.meter.write_units["TransactWriteItems"] == 8


def test_of_two_conditional_updates_at_the_same_time_one_is_refused_and_charged():
    """Somebody came between the read and the write: DynamoDB has looked at the item all the same."""
    clock = Clock()
    client = SimulatedDynamoDb(MeteredDynamoDb(), clock, Contention(0.02))
    conditional = {**ADD, "ConditionExpression": "attribute_not_exists(nothing)"}
    client.update_item(**conditional)
    clock.now = 0.01
    assert code(client.update_item, **conditional) == "ConditionalCheckFailedException"
    assert (client.conflicts, tally(client), client.table.meter.all_write_units) == (1, {"N": "1"}, 2)


def test_plain_updates_are_in_nobodys_way():
    """ADD without a condition needs no version and no transaction."""
    clock = Clock()
    client = SimulatedDynamoDb(MeteredDynamoDb(), clock, Contention(0.02))
    for _ in range(3):
        clock.now = 0.0
        client.update_item(**ADD)
    assert (client.conflicts, tally(client)) == (0, {"N": "3"})


@pytest.mark.parametrize(("at", "blocked"), [(0.97, False), (0.981, True), (1.0, True), (1.019, True), (1.02, False)])
def test_contention_reaches_as_far_as_its_length_both_ways(at, blocked):
    """An attempt conflicts with one that began just before, and with a repetition that was played before it."""
    contention = Contention(0.02)
    contention.take(("a", "b"), 1.0)
    assert contention.blocked(("a", "b"), at) is blocked
    assert not contention.blocked(("a", "c"), at)
