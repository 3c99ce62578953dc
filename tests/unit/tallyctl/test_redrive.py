"""The failure queue is worked off: what messages are, what is counted by them, and which of them stay."""

import json
from types import SimpleNamespace

import pytest

from audited import AuditedTable
from builders import SHARD, STREAM_ARN
from fakes import client_error
from tallyctl.redrive import Malformed, Order, Queue, Redriver, read
from tallystream.batches import _message
from tallystream.counters import LANE_WITHOUT_SHARDS, Share
from tallystream.streams import Trimmed

TABLE_ARN = STREAM_ARN.partition("/stream/")[0]
THROTTLED = client_error("ThrottlingException")


def given_up(first, last, *, shard=SHARD, arn=STREAM_ARN):
    """Return the message of a batch that the mapping has given up, as Lambda sends it."""
    return {
        "requestContext": {"condition": "RetryAttemptsExhausted"},
        "DDBStreamBatchInfo": {
            "shardId": shard,
            "startSequenceNumber": first,
            "endSequenceNumber": last,
            "batchSize": 3,
            "streamArn": arn,
        },
    }


def poison(post, first, last, *, shard=SHARD):
    """Return the message that the aggregator sends of a parent that it could not count on, as it makes it."""
    records = [{"dynamodb": {"SequenceNumber": number}, "eventSourceARN": STREAM_ARN} for number in (first, last)]
    left = [(number.zfill(40), "likeTally", 1, position) for position, number in enumerate((first, last))]
    share = Share((f"POST#{post}", "META"), left, 0, uncountable="tally is text")
    return _message(share, SimpleNamespace(records=records, lane=shard))


class FakeQueue:
    """An SQS queue: messages that were received are hidden until they are shown again."""

    def __init__(self, *messages):
        self.messages = {}
        self.hidden = set()
        self.sent = self.received = 0
        self.undeletable = set()
        for message in messages:
            self.put(message)

    def put(self, message):
        """Put a message on the queue and return its id."""
        name = f"m{self.sent}"
        self.sent += 1
        self.messages[name] = message if isinstance(message, str) else json.dumps(message)
        return name

    def receive_message(self, *, QueueUrl, MaxNumberOfMessages, WaitTimeSeconds, VisibilityTimeout):  # noqa: N803
        """Hide some messages and return them."""
        assert QueueUrl
        assert WaitTimeSeconds > 0
        assert VisibilityTimeout >= 300
        assert 1 <= MaxNumberOfMessages <= 10
        self.received += 1
        found = [name for name in self.messages if name not in self.hidden][:MaxNumberOfMessages]
        self.hidden |= set(found)
        messages = [
            {"MessageId": name, "ReceiptHandle": f"{name}/{self.received}", "Body": self.messages[name]}
            for name in found
        ]
        return {"Messages": messages} if messages else {}

    def delete_message_batch(self, *, QueueUrl, Entries):  # noqa: N803 - boto3's names
        """Delete messages, those left aside that cannot be."""
        assert QueueUrl
        assert 1 <= len(Entries) <= 10
        for entry in Entries:
            assert entry["ReceiptHandle"].startswith(entry["Id"] + "/")
            if entry["Id"] not in self.undeletable:
                del self.messages[entry["Id"]]
        failed = [entry["Id"] for entry in Entries if entry["Id"] in self.undeletable]
        return {"Failed": [{"Id": name, "Code": "InternalError", "Message": "no luck"} for name in failed]}

    def change_message_visibility_batch(self, *, QueueUrl, Entries):  # noqa: N803 - boto3's names
        """Show messages again."""
        assert QueueUrl
        assert 1 <= len(Entries) <= 10
        for entry in Entries:
            assert entry["VisibilityTimeout"] == 0
            self.hidden.discard(entry["Id"])

    @property
    def visible(self):
        """The messages that can be received now."""
        return [name for name in self.messages if name not in self.hidden]


@pytest.fixture
def audited():
    """Give a table with the posts p1 and p2, whose two likes each are counted."""
    audited = AuditedTable()
    for post in ("p1", "p2"):
        audited.table.add_post(post)
        audited.like(post, "u1", "u2")
    for post in ("p1", "p2"):
        audited.settle(post)
    return audited


def numbers(audited, start=0):
    """Return the first and the last sequence number of the changes, from one on."""
    found = [change.number for _, change in audited.streamed[start:]]
    return found[0], found[-1]


def redrive(audited, queue, *, names_shards=True, auditor=None, **order):
    """Work off the queue."""
    redriver = Redriver(
        queue=Queue(queue, "https://sqs.eu-west-1.amazonaws.com/111122223333/failed"),
        stream=lambda _: audited,
        auditor=auditor or audited.auditor(names_shards=names_shards),
        names_shards=names_shards,
        table_arn=TABLE_ARN,
        wanted=set(),
    )
    return redriver.run(Order(**order))


def reasons(outcome):
    """Return why messages are kept."""
    return [job.reason for job in outcome.kept]


# What a message is.


@pytest.mark.parametrize(
    "message", [given_up("0" * 18 + "701", "0" * 18 + "703"), poison("p1", "0" * 18 + "701", "0" * 18 + "703")]
)
def test_b20_both_shapes_name_a_shard_and_two_numbers(message):
    """The mapping's as Lambda sends it, and the aggregator's as it makes it."""
    named = read(json.dumps(message), TABLE_ARN)
    assert (named.stream_arn, named.shard, named.first, named.last) == (
        STREAM_ARN,
        SHARD,
        "0" * 18 + "701",
        "0" * 18 + "703",
    )
    assert named.parent == (("POST#p1", "META") if "parent" in message else None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "neither DDBStreamBatchInfo nor parent"),
        (json.dumps({"DDBStreamBatchInfo": {}}), "does not name a stream"),
        (json.dumps({"DDBStreamBatchInfo": None}), "neither"),
        (json.dumps(given_up(None, "1")), "does not name a stream"),
        (json.dumps(given_up(1, 2)), "does not name a stream"),
        (json.dumps(given_up("x", "1")), "does not name records"),
        (json.dumps(given_up("2", "1")), "does not name records"),
        (json.dumps(given_up("1", "1" * 41)), "does not name records"),
        (json.dumps(given_up("1", "2", shard="")), "does not name records"),
        (json.dumps(given_up("1", "2", arn="arn:…")), "another table's stream"),
        (json.dumps(given_up("1", "2", arn=STREAM_ARN.replace("table/T/", "table/T2/"))), "another table's stream"),
        (json.dumps({**poison("p1", "1", "2"), "parent": {"PK": "POST#p1"}}), "its parent is no key"),
        (json.dumps({**poison("p1", "1", "2"), "shard": None}), "does not name a stream"),
    ],
)
def test_a_message_of_neither_shape_is_malformed(body, said):
    """The reason says what it is instead."""
    with pytest.raises(Malformed, match=said):
        read(body, TABLE_ARN)


# What is counted.


def test_b20_only_what_was_not_yet_applied_is_counted(audited):
    """The records that the message names were counted in part; so are their parents exact, and the message is gone."""
    audited.like("p1", "u3")
    audited.settle("p1")
    audited.like("p1", "u4")
    audited.like("p2", "u3", "u4")
    queue = FakeQueue(given_up(*numbers(audited)))
    outcome = redrive(audited, queue)
    assert (outcome.counted, outcome.done, reasons(outcome), queue.messages) == (3, 1, [], {})
    assert (audited.table.tally("p1"), audited.table.tally("p2")) == (4, 4)
    assert outcome.figures()["parents"] == 2
    queue.put(given_up(*numbers(audited)))
    outcome = redrive(audited, queue)
    assert (outcome.counted, outcome.done) == (0, 1)
    assert (audited.table.tally("p1"), audited.table.tally("p2")) == (4, 4)


def test_b20_a_batch_that_lies_behind_the_mark_is_repaired(audited):
    """The aggregator went on behind the lost batch: its changes cannot be counted, so the audit puts them in."""
    audited.like("p1", "u3", "u4")
    lost = numbers(audited, 4)
    audited.like("p1", "u5")
    audited.settle("p1", 3)
    queue = FakeQueue(given_up(*lost))
    outcome = redrive(audited, queue)
    assert (outcome.counted, len(outcome.report.repaired), outcome.done) == (0, 1, 1)
    assert audited.table.tally("p1") == 5


def test_b20_a_poison_parents_own_changes_are_counted_and_nobody_elses(audited):
    """Between its first and its last number lie other parents' records, which are in long since or come yet."""
    audited.like("p1", "u3")
    audited.like("p2", "u3")
    audited.like("p1", "u4")
    queue = FakeQueue(poison("p1", *numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.counted, outcome.done) == (2, 1)
    assert (audited.table.tally("p1"), audited.table.tally("p2")) == (4, 2)


def test_messages_are_worked_off_in_the_order_of_their_records(audited):
    """A mark says that everything before it is in: the later batch of two must not come first."""
    audited.like("p1", "u3")
    audited.like("p1", "u4")
    first, last = numbers(audited, 4)
    queue = FakeQueue(given_up(last, last), given_up(first, first))
    outcome = redrive(audited, queue)
    assert (outcome.counted, len(outcome.report.repaired), outcome.done) == (2, 0, 2)
    assert audited.table.tally("p1") == 4


def test_unlikes_are_counted_too(audited):
    """REMOVE is minus one."""
    audited.unlike("p1", "u1")
    outcome = redrive(audited, FakeQueue(given_up(*numbers(audited, 4))))
    assert (outcome.counted, outcome.done, audited.table.tally("p1")) == (1, 1, 1)
    assert not outcome.report.repaired


def test_what_comes_after_the_named_records_is_left_to_the_aggregator(audited):
    """It has not given those up."""
    audited.like("p1", "u3")
    named = numbers(audited, 4)
    audited.like("p1", "u4")
    outcome = redrive(audited, FakeQueue(given_up(*named)))
    assert (outcome.counted, outcome.done, audited.table.tally("p1")) == (1, 1, 3)


def test_what_lies_before_the_named_records_is_repaired(audited):
    """It was lost before, by a message that somebody deleted; the mark goes over it."""
    audited.like("p1", "u3")
    audited.like("p1", "u4")
    outcome = redrive(audited, FakeQueue(given_up(*numbers(audited, 5))))
    assert (outcome.counted, len(outcome.report.repaired), audited.table.tally("p1")) == (1, 1, 4)


def test_a_poison_parent_shares_its_item_collection_with_others():
    """Replies of one comment are counted on that comment, and the other comment's are not."""
    audited = AuditedTable('[{"child": "REPLY#{c}#", "parent": "COMMENT#{c}", "attribute": "replies"}]')
    for comment in ("c1", "c2"):
        key = {"PK": {"S": "POST#p1"}, "SK": {"S": f"COMMENT#{comment}"}}
        audited.table.items["POST#p1", f"COMMENT#{comment}"] = dict(key)
    for comment in ("c1", "c2", "c1"):
        reply = f"REPLY#{comment}#r{len(audited.streamed)}"
        audited.table.put_item(Item={"PK": {"S": "POST#p1"}, "SK": {"S": reply}})
    first, last = numbers(audited)
    message = {**poison("p1", first, last), "parent": {"PK": "POST#p1", "SK": "COMMENT#c1"}}
    outcome = redrive(audited, FakeQueue(message))
    assert (outcome.counted, outcome.done) == (2, 1)
    assert audited.table.items["POST#p1", "COMMENT#c1"]["replies"] == {"N": "2"}
    assert "replies" not in audited.table.items["POST#p1", "COMMENT#c2"]


def test_children_of_a_missing_parent_count_nowhere_and_the_message_goes(audited):
    """There is nothing to add to, and no ghost comes of it."""
    audited.like("gone", "u1")
    queue = FakeQueue(given_up(*numbers(audited, 4)), poison("gone", *numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.counted, outcome.done, reasons(outcome)) == (0, 2, [])
    assert ("POST#gone", "META") not in audited.table.items
    assert outcome.report.orphans == {("POST#gone", "META"): 1}


def test_where_tallies_are_written_in_transactions_nothing_is_counted():
    """The like brought its own count, and there are no marks; the parents are audited all the same."""
    audited = AuditedTable()
    for post, tally in (("p1", "1"), ("p2", "9")):
        audited.table.add_post(post)
        audited.like(post, "u1")
        audited.table.items[f"POST#{post}", "META"]["likeTally"] = {"N": tally}
    named = numbers(audited)
    audited.clock += 60
    outcome = redrive(audited, FakeQueue(given_up(*named)), auditor=audited.auditor(path="transaction"))
    assert (outcome.counted, outcome.done, len(outcome.report.repaired)) == (0, 1, 1)
    assert (audited.table.tally("p1"), audited.table.tally("p2")) == (1, 1)
    assert lanes(audited, "p1") == set()


# The lane of the marks.


def lanes(audited, post):
    """Return the lanes of a post's marks."""
    return {name.removeprefix("mark#") for name in audited.table.marks(post)} - {"repair"}


OWN_LANE = SHARD.removeprefix("shardId-")


@pytest.mark.parametrize(("names_shards", "lane"), [(True, OWN_LANE), (False, LANE_WITHOUT_SHARDS)])
def test_without_marks_the_lane_is_the_one_that_the_aggregator_writes(names_shards, lane):
    """In another lane, what the mapping delivers after all would count again."""
    audited = AuditedTable()
    audited.table.add_post("p1")
    audited.like("p1", "u1")
    redrive(audited, FakeQueue(given_up(*numbers(audited))), names_shards=names_shards)
    assert (audited.table.tally("p1"), lanes(audited, "p1")) == (1, {lane})


@pytest.mark.parametrize(("shard", "lane"), [(SHARD, OWN_LANE), ("stream", "stream"), ("shardId-other", OWN_LANE)])
@pytest.mark.parametrize("names_shards", [True, False])
def test_a_parents_own_marks_say_the_lane(shard, lane, names_shards):
    """Whatever the deployment is set to now."""
    audited = AuditedTable()
    audited.table.add_post("p1")
    audited.like("p1", "u1")
    audited.settle("p1", shard=shard)
    audited.like("p1", "u2")
    redrive(audited, FakeQueue(given_up(*numbers(audited, 1))), names_shards=names_shards)
    assert audited.table.tally("p1") == 2
    assert lanes(audited, "p1") == {lane, shard.removeprefix("shardId-")}


@pytest.mark.parametrize("first", ["stream", SHARD])
def test_of_two_lanes_the_one_that_reaches_further_counted_last(first):
    """The window was turned on or off in between: the other lane's mark would let through what is in."""
    audited = AuditedTable()
    audited.table.add_post("p1")
    audited.like("p1", "u1")
    audited.settle("p1", shard=first)
    audited.like("p1", "u2")
    audited.settle("p1", shard="stream" if first == SHARD else SHARD)
    audited.like("p1", "u3")
    outcome = redrive(audited, FakeQueue(given_up(*numbers(audited))))
    assert (outcome.counted, audited.table.tally("p1"), len(outcome.report.repaired)) == (1, 3, 0)


@pytest.mark.parametrize(("shard", "lane"), [("stream", "stream"), (SHARD, OWN_LANE)])
def test_a_parent_without_marks_has_the_lane_of_the_others(audited, shard, lane):
    """The same mapping has counted them."""
    for post in ("p1", "p2"):
        for name in list(audited.table.marks(post)):
            del audited.table.items[f"POST#{post}", "META"][name]
    audited.settle("p1", shard=shard)
    audited.table.add_post("new")
    audited.like("new", "u1")
    redrive(audited, FakeQueue(given_up(*numbers(audited))), names_shards=shard == "stream")
    assert (audited.table.tally("new"), lanes(audited, "new")) == (1, {lane})


@pytest.mark.parametrize(("shard", "lane"), [("stream", "stream"), (SHARD, OWN_LANE)])
def test_a_poison_parents_message_says_its_lane(audited, shard, lane):
    """As the aggregator was told it, whatever it is told now."""
    audited.table.add_post("new")
    audited.like("new", "u1")
    redrive(audited, FakeQueue(poison("new", *numbers(audited, 4), shard=shard)), names_shards=shard == "stream")
    assert (audited.table.tally("new"), lanes(audited, "new")) == (1, {lane})


def test_a_parents_marks_of_other_shards_say_that_shards_are_named(audited):
    """Others of the batch may have had none at the time."""
    audited.table.add_post("new")
    audited.settle("new", shard="shardId-other")
    audited.settle("p1", shard="stream")
    audited.like("new", "u1")
    audited.like("p1", "u3")
    redrive(audited, FakeQueue(given_up(*numbers(audited, 4))), names_shards=False)
    assert (audited.table.tally("new"), lanes(audited, "new")) == (1, {"other", OWN_LANE})


# What stays.


def test_a_parent_that_still_cannot_be_counted_keeps_its_message(audited):
    """With the reason, and the other parents' counts are in; once it can be counted, the message goes."""
    audited.table.items["POST#p1", "META"]["likeTally"] = {"S": "two"}
    audited.like("p1", "u3")
    audited.like("p2", "u3")
    queue = FakeQueue(given_up(*numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.done, outcome.counted, queue.visible) == (0, 1, ["m0"])
    assert reasons(outcome)[0].startswith("p1: ")
    assert audited.table.tally("p2") == 3
    audited.table.items["POST#p1", "META"]["likeTally"] = {"N": "0"}
    outcome = redrive(audited, queue)
    assert (outcome.done, outcome.counted, queue.messages) == (1, 1, {})
    assert audited.table.tally("p1") == 3


def test_a_parent_whose_item_is_full_keeps_its_message(audited):
    """Its tally is what it was and its changes wait: only the refused update tells that they are not in."""
    audited.like("p1", "u3")
    audited.table.plant("p1", [client_error("ValidationException", "Item size to update has exceeded the maximum")])
    queue = FakeQueue(given_up(*numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.done, outcome.counted, queue.visible) == (0, 0, ["m0"])
    assert "Item size" in reasons(outcome)[0]


def test_a_foreign_mark_keeps_the_message(audited):
    """Nothing is counted by a mark that nobody can read."""
    audited.table.items["POST#p1", "META"]["mark#x"] = {"S": "foreign"}
    audited.like("p1", "u3")
    queue = FakeQueue(given_up(*numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.done, outcome.counted, audited.table.tally("p1")) == (0, 0, 2)
    assert "mark#x is not a map" in reasons(outcome)[0]


@pytest.fixture
def no_waiting(monkeypatch):
    """Repeat without a pause."""
    monkeypatch.setattr("tallyctl.redrive._patiently.sleep", lambda _: None)


@pytest.mark.usefixtures("no_waiting")
def test_a_throttle_is_waited_out(audited):
    """Twice refused, and counted once."""
    audited.like("p1", "u3")
    audited.table.plant("p1", [THROTTLED, THROTTLED])
    outcome = redrive(audited, FakeQueue(given_up(*numbers(audited, 4))))
    assert (outcome.done, outcome.counted, audited.table.tally("p1")) == (1, 1, 3)


@pytest.mark.usefixtures("no_waiting")
def test_a_lasting_throttle_keeps_the_message(audited):
    """It is no reason to lose it."""
    audited.like("p1", "u3")
    audited.table.plant("p1", [THROTTLED] * 50)
    queue = FakeQueue(given_up(*numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.done, outcome.counted, queue.visible) == (0, 0, ["m0"])
    assert "ThrottlingException" in reasons(outcome)[0]


def test_b20_trimmed_records_are_said_to_be_trimmed_and_the_message_stays(audited):
    """With the audit to run; the aggregator's shape names the post, and nothing is written."""
    audited.like("p1", "u3")
    first, last = numbers(audited, 4)
    audited.rest()
    queue = FakeQueue(given_up(first, last), poison("p1", first, last), given_up("1", "2", shard="shardId-1"))
    outcome = redrive(audited, queue)
    by_batch, by_parent, by_shard = (
        next(job for job in outcome.jobs if job.message == name) for name in queue.messages
    )
    assert (outcome.done, outcome.dropped, len(queue.visible), audited.table.writes()) == (0, 0, 3, 0)
    assert "trimmed: the stream has no record" in by_batch.reason
    assert "not known: run `tallyctl audit --repair`" in by_batch.reason
    assert "it is of p1: run `tallyctl audit --post p1 --repair`" in by_parent.reason
    assert "shardId-1 any more" in by_shard.reason


def test_trimmed_messages_are_dropped_when_asked_to_and_no_others(audited):
    """After that audit they say nothing any more; a malformed one never said anything."""
    audited.like("p1", "u3")
    numbered = numbers(audited, 4)
    audited.rest()
    queue = FakeQueue(given_up(*numbered), poison("p1", *numbered), "{}")
    outcome = redrive(audited, queue, drop_trimmed=True)
    assert (outcome.dropped, outcome.done, queue.visible) == (2, 0, ["m2"])
    assert [reason.partition(":")[0] for reason in reasons(outcome)] == ["malformed"]


@pytest.mark.parametrize("error", [client_error("ValidationException", operation="GetShardIterator"), Trimmed("gone")])
def test_a_number_that_the_shard_never_had_is_as_good_as_trimmed(audited, error, monkeypatch):
    """One message must not keep the others from being redriven."""

    def records(*_):
        raise error

    monkeypatch.setattr(audited, "records", records)
    audited.like("p2", "u3")
    queue = FakeQueue(given_up("1", "2"), poison("p2", *numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.done, len(outcome.kept), outcome.kept[0].trimmed) == (1, 1, True)
    assert audited.table.tally("p2") == 3


def test_a_stream_that_is_gone_has_no_records(audited, monkeypatch):
    """As a day after another one took its place."""

    def catch_up(*_):
        raise client_error("ResourceNotFoundException", operation="DescribeStream")

    audited.like("p1", "u3")
    queue = FakeQueue(poison("p1", *numbers(audited, 4)))
    old = AuditedTable()
    monkeypatch.setattr(old, "catch_up", catch_up)
    redriver = Redriver(Queue(queue, "https://q/u"), lambda _: old, audited.auditor(), True, TABLE_ARN, set())
    outcome = redriver.run(Order())
    assert "the stream is gone" in reasons(outcome)[0]


def test_missing_rights_are_raised_and_the_messages_are_visible_again(audited, monkeypatch):
    """That is nothing of a message's."""

    def records(*_):
        raise client_error("AccessDeniedException", operation="GetShardIterator")

    monkeypatch.setattr(audited, "records", records)
    queue = FakeQueue(given_up("1", "2"))
    with pytest.raises(Exception, match="AccessDenied"):
        redrive(audited, queue)
    assert queue.visible == ["m0"]


def test_a_malformed_message_is_left_and_the_others_are_redriven(audited):
    """It is named, and visible at once."""
    audited.like("p1", "u3")
    queue = FakeQueue("{no json", given_up(*numbers(audited, 4)))
    outcome = redrive(audited, queue)
    assert (outcome.done, queue.visible, audited.table.tally("p1")) == (1, ["m0"], 3)
    assert reasons(outcome)[0].startswith("malformed: it is no JSON")
    (kept,) = outcome.figures()["kept"]
    assert (kept["message"], kept["parents"]) == ("m0", [])


def test_a_message_that_sqs_does_not_delete_is_kept(audited):
    """It is redriven once more, which changes nothing."""
    audited.like("p1", "u3")
    queue = FakeQueue(given_up(*numbers(audited, 4)))
    queue.undeletable = {"m0"}
    outcome = redrive(audited, queue)
    assert (outcome.done, reasons(outcome), queue.visible) == (0, ["SQS did not delete it: no luck"], ["m0"])


# The queue.


def test_a_dry_run_says_what_would_be_counted_and_writes_nothing(audited):
    """The message is visible again, and the next run does what this one said."""
    audited.like("p1", "u3")
    audited.like("p2", "u3")
    audited.settle("p2")
    audited.like("p2", "u4")
    audited.table.items["POST#p2", "META"]["likeTally"] = {"N": "9"}
    queue = FakeQueue(given_up(*numbers(audited)))
    outcome = redrive(audited, queue, dry_run=True)
    assert (outcome.counted, outcome.done, reasons(outcome), queue.visible) == (2, 0, [], ["m0"])
    assert (audited.table.writes(), audited.table.tally("p1"), len(outcome.report.drifting)) == (0, 2, 1)
    assert redrive(audited, queue).counted == 2


def test_a_dry_run_finds_what_would_be_kept(audited):
    """Trimmed and malformed messages are told, and not dropped."""
    queue = FakeQueue(given_up("1", "2"), "{}")
    outcome = redrive(audited, queue, dry_run=True, drop_trimmed=True)
    assert (len(outcome.kept), outcome.dropped, len(queue.visible)) == (2, 0, 2)


def test_all_messages_are_received_and_each_once(audited):
    """In several answers, as long as one brings something new."""
    queue = FakeQueue(*["{}"] * 25)
    outcome = redrive(audited, queue)
    assert (len(outcome.jobs), len({job.message for job in outcome.jobs}), len(queue.visible)) == (25, 25, 25)
    assert queue.received == 4


@pytest.mark.parametrize("most", [1, 10, 12])
def test_no_more_messages_are_received_than_asked_for(audited, most):
    """The others stay as they are."""
    queue = FakeQueue(*["{}"] * 25)
    assert len(redrive(audited, queue, most=most).jobs) == most


def test_a_message_that_comes_twice_in_one_run_is_one(audited):
    """SQS delivers at least once; the later receipt is the one that counts."""
    audited.like("p1", "u3")
    queue = FakeQueue(given_up(*numbers(audited, 4)))
    receive = queue.receive_message

    def again(**request):
        assert queue.received < 5, "it goes round for ever"
        answer = receive(**request)
        queue.hidden.clear()
        return answer

    queue.receive_message = again
    outcome = redrive(audited, queue)
    assert (len(outcome.jobs), outcome.done, outcome.counted, queue.messages) == (1, 1, 1, {})


def test_an_empty_queue_is_asked_once_and_nothing_else_is(audited):
    """No stream is read and no item."""
    caught_up = audited.caught_up
    outcome = redrive(audited, FakeQueue())
    assert (outcome.figures()["messages"], outcome.kept, audited.table.writes()) == (0, [], 0)
    assert audited.caught_up == caught_up


def test_only_the_touched_collections_changes_are_kept(audited):
    """The stream of a busy table has a day's records; a few posts' are enough."""
    audited.like("p1", "u3")
    wanted = set()
    redriver = Redriver(
        Queue(FakeQueue(given_up(*numbers(audited, 4))), "https://q/u"),
        lambda _: audited,
        audited.auditor(),
        names_shards=True,
        table_arn=TABLE_ARN,
        wanted=wanted,
    )
    redriver.run(Order())
    assert wanted == {"POST#p1"}
