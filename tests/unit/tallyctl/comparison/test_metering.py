"""What the table in memory charges for each request, and its transactions and counting queries."""

import pytest
from botocore.exceptions import ClientError

from tallyctl.comparison.metering import PAGE_BYTES, MeteredDynamoDb

POST = {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}}
LIKE = {"PK": {"S": "POST#p1"}, "SK": {"S": "LIKE#USER#u1"}}
ADD = {
    "Key": POST,
    "UpdateExpression": "ADD likeTally :one",
    "ConditionExpression": "attribute_exists(PK)",
    "ExpressionAttributeValues": {":one": {"N": "1"}},
}
PUT = {"Item": LIKE, "ConditionExpression": "attribute_not_exists(PK)"}


@pytest.fixture
def table():
    """Give a metered table that holds the post p1, of more than 1 and less than 2 KB."""
    table = MeteredDynamoDb()
    table.items["POST#p1", "META"] = {**POST, "likeTally": {"N": "0"}, "body": {"S": "x" * 1500}}
    return table


def refused(call, **request):
    """Send a request that is refused, and return the error's answer."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    return caught.value.response


def test_each_write_is_charged_by_its_item(table):
    """A small like takes one unit, an update of a post above 1 KB two, a removal what was there."""
    table.put_item(**PUT)
    table.update_item(**ADD)
    table.delete_item(Key=LIKE)
    assert table.meter.write_units == {"PutItem": 1, "UpdateItem": 2, "DeleteItem": 1}
    assert table.meter.requests == {"PutItem": 1, "UpdateItem": 1, "DeleteItem": 1}
    assert table.meter.all_write_units == 4


def test_a_refused_write_is_charged_by_the_item_that_it_met(table):
    """The condition fails on the post of two units: DynamoDB has read it to find out."""
    refused(table.update_item, **{**ADD, "ConditionExpression": "attribute_not_exists(PK)"})
    refused(table.delete_item, Key=LIKE, ConditionExpression="attribute_exists(PK)")
    assert table.meter.write_units == {"UpdateItem": 2, "DeleteItem": 1}


def test_a_request_that_is_not_valid_is_not_charged(table):
    """It is turned away before any item is read."""
    refused(table.update_item, **{**ADD, "UpdateExpression": "ADD likeTally :two"})
    assert table.meter.all_write_units == 0


def test_a_transaction_costs_twice_its_items(table):
    """The like and the post of two units: 2 x (1 + 2)."""
    table.transact_write_items(TransactItems=[{"Put": PUT}, {"Update": ADD}], ClientRequestToken="t1")
    assert table.meter.write_units == {"TransactWriteItems": 6}
    assert table.items["POST#p1", "META"]["likeTally"] == {"N": "1"}


def test_a_repeated_token_changes_nothing_and_is_charged_as_reads(table):
    """The SDK's repetition of a transaction whose answer was lost."""
    for _ in range(2):
        table.transact_write_items(TransactItems=[{"Put": PUT}, {"Update": ADD}], ClientRequestToken="t1")
    assert table.items["POST#p1", "META"]["likeTally"] == {"N": "1"}
    assert (table.meter.all_write_units, table.meter.all_read_units) == (6, 4)


def test_a_token_with_another_request_is_refused(table):
    """A token belongs to one request."""
    table.transact_write_items(TransactItems=[{"Put": PUT}], ClientRequestToken="t1")
    answer = refused(table.transact_write_items, TransactItems=[{"Delete": {"Key": LIKE}}], ClientRequestToken="t1")
    assert answer["Error"]["Code"] == "IdempotentParameterMismatchException"


def test_a_cancelled_transaction_says_of_each_item_why(table):
    """Reasons stand in the items' order, nothing is written, and what was read is charged twice."""
    table.put_item(**PUT)
    table.meter.write_units.clear()
    answer = refused(table.transact_write_items, TransactItems=[{"Update": ADD}, {"Put": PUT}])
    assert [reason["Code"] for reason in answer["CancellationReasons"]] == ["None", "ConditionalCheckFailed"]
    assert table.items["POST#p1", "META"]["likeTally"] == {"N": "0"}
    assert table.meter.write_units == {"TransactWriteItems": 6}


def test_a_transaction_may_name_an_item_only_once(table):
    """DynamoDB refuses it whatever the conditions say."""
    answer = refused(table.transact_write_items, TransactItems=[{"Update": ADD}, {"Update": ADD}])
    assert answer["Error"]["Code"] == "ValidationException"


def test_a_transaction_removes_what_it_deletes(table):
    """A Delete in a transaction is one on the stream too."""
    changes = []
    table = MeteredDynamoDb(lambda name, key: changes.append((name, key[1])))
    table.put_item(**PUT)
    table.transact_write_items(TransactItems=[{"Delete": {"Key": LIKE, "ConditionExpression": "attribute_exists(PK)"}}])
    assert changes == [("INSERT", "LIKE#USER#u1"), ("REMOVE", "LIKE#USER#u1")]
    assert not table.items


def test_reads_are_charged_by_the_item(table):
    """Half a unit for an eventually consistent read, a whole one for a consistent read, the same for nothing."""
    table.get_item(Key=POST)
    table.get_item(Key=POST, ConsistentRead=True)
    table.get_item(Key=LIKE)
    assert table.meter.read_units == {"GetItem": 2.0}


def counted(table, start=None):
    """Ask for the number of likes of p1, from a key on."""
    return table.query(
        Select="COUNT",
        KeyConditionExpression="PK = :pk AND begins_with(SK, :prefix)",
        ExpressionAttributeValues={":pk": {"S": "POST#p1"}, ":prefix": {"S": "LIKE#USER#"}},
        **({"ExclusiveStartKey": start} if start else {}),
    )


def test_counting_is_charged_by_all_that_is_counted(table):
    """A hundred likes of some 100 bytes are three reads of 4 KB, half a unit each; the post is not among them."""
    for user in range(100):
        table.put_item(Item={**LIKE, "SK": {"S": f"LIKE#USER#{user:085d}"}})
    assert counted(table) == {"Count": 100, "ScannedCount": 100}
    assert table.meter.read_units["Query"] == 1.5


def test_counting_goes_by_pages_of_a_megabyte(table):
    """Where the likes are more than 1 MB, the answer says where to go on, and the pages add up."""
    for user in range(5):
        table.put_item(Item={**LIKE, "SK": {"S": f"LIKE#USER#{user}"}, "text": {"S": "x" * (PAGE_BYTES // 3)}})
    first = counted(table)
    second = counted(table, first["LastEvaluatedKey"])
    assert (first["Count"], second["Count"], "LastEvaluatedKey" in second) == (3, 2, False)


def test_a_like_after_a_count_is_in_the_next_one(table):
    """The order of the keys is kept between counts, but not past a write."""
    table.put_item(**PUT)
    assert counted(table)["Count"] == 1
    table.put_item(Item={**LIKE, "SK": {"S": "LIKE#USER#u2"}})
    assert counted(table)["Count"] == 2
