"""The stream reader: shards in their order, every page, iterators and trimmed data, and when a shard has been read."""

import itertools
from dataclasses import dataclass, field

import pytest

from builders import NOW, foreign, like, modify, record, unlike
from fakes import client_error
from tallystream.audit import Disturbed, Mark, Unjudged
from tallystream.rules import DEFAULT_COUNTERS, Rules
from tallystream.streams import EMPTY_READS, EMPTY_READS_AT_MOST, READ_EVERY_S, STREAM_DELAY_S, TableStream, Trimmed

RULES = Rules.parse(DEFAULT_COUNTERS)
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/T/stream/1"


@dataclass
class Shard:
    """A shard of the fake stream."""

    name: str
    records: list = field(default_factory=list)
    parent: str | None = None
    closed: bool = False
    trimmed: int = 0
    """So many records, from the oldest on, are gone."""


class FakeStreams:
    """A dynamodbstreams client on a few shards, with a clock that only sleeping moves."""

    def __init__(self, *shards, page=2):
        self.shards = {shard.name: shard for shard in shards}
        self.page = page
        self.clock = float(NOW)
        self.slept = []
        self.calls = []
        self.errors = []
        """What the next reads meet, one each; None is nothing."""
        self.on_read = lambda _: None

    def now(self):
        """Return the time."""
        return self.clock

    def sleep(self, seconds):
        """Let time pass."""
        assert seconds > 0
        self.slept.append(seconds)
        self.clock += seconds

    def describe_stream(self, *, StreamArn, ExclusiveStartShardId=None):  # noqa: N803 - boto3's names
        """Return one shard a page."""
        assert StreamArn == ARN
        names = list(self.shards)
        if not names:
            return {"StreamDescription": {"Shards": []}}
        index = names.index(ExclusiveStartShardId) + 1 if ExclusiveStartShardId else 0
        shard = self.shards[names[index]]
        numbers = {"StartingSequenceNumber": "1"} | ({"EndingSequenceNumber": "9"} if shard.closed else {})
        found = {"ShardId": shard.name, "SequenceNumberRange": numbers}
        found |= {"ParentShardId": shard.parent} if shard.parent else {}
        more = {"LastEvaluatedShardId": shard.name} if index + 1 < len(names) else {}
        return {"StreamDescription": {"Shards": [found], **more}}

    def get_shard_iterator(self, *, StreamArn, ShardId, ShardIteratorType, SequenceNumber=None):  # noqa: N803
        """Return an iterator: shard and position as text."""
        assert StreamArn == ARN
        if ShardId not in self.shards:
            raise client_error("ResourceNotFoundException", operation="GetShardIterator")
        self.calls.append((ShardIteratorType, ShardId))
        shard = self.shards[ShardId]
        if ShardIteratorType == "TRIM_HORIZON":
            return {"ShardIterator": f"{ShardId}/{shard.trimmed}"}
        numbers = [record["dynamodb"]["SequenceNumber"] for record in shard.records]
        position = numbers.index(SequenceNumber) + (ShardIteratorType == "AFTER_SEQUENCE_NUMBER")
        if position < shard.trimmed:
            raise client_error("TrimmedDataAccessException", operation="GetShardIterator")
        return {"ShardIterator": f"{ShardId}/{position}"}

    def get_records(self, *, ShardIterator):  # noqa: N803 - boto3's name
        """Return a page of records."""
        name, _, at = ShardIterator.rpartition("/")
        self.calls.append(("read", name, self.clock))
        self.on_read(name)
        error = self.errors.pop(0) if self.errors else None
        if error:
            raise error
        shard, position = self.shards[name], int(at)
        if position < shard.trimmed:
            raise client_error("TrimmedDataAccessException", operation="GetRecords")
        records = shard.records[position : position + self.page]
        after = position + len(records)
        ended = shard.closed and after == len(shard.records)
        return {"Records": records} | ({} if ended else {"NextShardIterator": f"{name}/{after}"})

    def stream(self, **changes):
        """Return the product's reader on this client."""
        parts = {"now": self.now, "sleep": self.sleep, "concurrently": map, **changes}
        return TableStream(self, ARN, RULES, **parts)

    def order(self):
        """Return which shards were read, in the order of their first read."""
        return list(dict.fromkeys(name for kind, name, *_ in self.calls if kind == "read"))


def users(stream, post="p1"):
    """Return the users of a post's changes."""
    return [change.sort_key.removeprefix("LIKE#USER#") for change in stream.changes(f"POST#{post}")]


def test_every_page_of_every_shard_is_read_and_parents_come_before_their_children():
    """Shards come in pages of one, records in pages of two; a grandchild waits for its grandparent's end."""
    streams = FakeStreams(
        Shard("c", [like(30, user="u6")], parent="b"),
        Shard("b", [like(20, user="u5")], parent="a", closed=True),
        Shard("a", [like(number, user=f"u{number}") for number in range(5)], closed=True),
    )
    stream = streams.stream()
    stream.catch_up()
    assert users(stream) == ["u0", "u1", "u2", "u3", "u4", "u5", "u6"]
    assert streams.order() == ["a", "b", "c"]
    assert stream.shards.open == {"c"}
    assert list(stream.shards.ancestors("c")) == ["b", "a"]


def test_only_insertions_and_removals_of_wanted_children_are_kept():
    """Other tables' records, other items, overwritten likes and collections that nobody asks for are left out."""
    made = float(NOW - 60)
    streams = FakeStreams(
        Shard(
            "a",
            [
                like(1, at=made),
                modify(2),
                foreign(3),
                record("INSERT", 4, ("POST#p1", "META")),
                like(5, post="p2"),
                unlike(6, at=made + 1),
            ],
        )
    )
    stream = streams.stream(wanted=lambda key: key == "POST#p1")
    stream.catch_up()
    found = [
        (change.shard, int(change.number), change.inserted, change.made_at) for change in stream.changes("POST#p1")
    ]
    assert found == [("a", 1, True, NOW - 60), ("a", 6, False, NOW - 59)]
    assert stream.changes("POST#p2") == []


def test_the_next_call_goes_on_where_the_last_one_ended():
    """Nothing is read twice, and what came since is found."""
    shard = Shard("a", [like(1)])
    streams = FakeStreams(shard)
    stream = streams.stream()
    stream.catch_up()
    shard.records += [unlike(2), like(3)]
    stream.catch_up()
    assert [int(change.number) for change in stream.changes("POST#p1")] == [1, 2, 3]
    assert streams.calls.count(("TRIM_HORIZON", "a")) == 1


def test_a_record_that_shows_late_is_waited_for():
    """What was written before the call may take until the stream's delay is over to show."""
    shard = Shard("a")
    streams = FakeStreams(shard)
    began = streams.clock

    def show(_):
        if streams.clock >= began + STREAM_DELAY_S and not shard.records:
            shard.records.append(like(1))

    streams.on_read = show
    stream = streams.stream()
    stream.catch_up()
    assert users(stream) == ["u1"]


def test_an_open_shard_has_been_read_only_after_several_empty_reads():
    """An empty page may come anywhere; the fifth record here shows only after as many of them as are allowed."""
    shard = Shard("a", [like(1)])
    streams = FakeStreams(shard)
    stream = streams.stream()
    reads = []

    def show(_):
        reads.append(streams.clock)
        after = sum(at >= NOW + STREAM_DELAY_S for at in reads)
        if after == EMPTY_READS - 1:
            shard.records.append(like(2))

    streams.on_read = show
    stream.catch_up()
    assert len(stream.changes("POST#p1")) == 2


def test_a_mark_says_that_there_is_more_behind_empty_pages():
    """The aggregator was there already; so are the records."""
    shard = Shard("shardId-7", [like(1)])
    streams = FakeStreams(shard)
    stream = streams.stream()
    reads = []
    streams.on_read = lambda _: reads.append(1) or (len(reads) == 40 and shard.records.append(like(2)))
    stream.catch_up({"mark#7": Mark("2".zfill(40), NOW)})
    assert len(stream.changes("POST#p1")) == 2
    assert len(reads) < 40 + 2 * EMPTY_READS


def test_a_mark_that_nobody_can_reach_does_not_last_for_ever():
    """It is a foreign one, or its records are trimmed."""
    streams = FakeStreams(Shard("shardId-7", [like(1)]))
    streams.stream().catch_up({"mark#7": Mark("9".zfill(40), NOW)})
    reads = sum(call[0] == "read" for call in streams.calls)
    assert EMPTY_READS_AT_MOST <= reads < EMPTY_READS_AT_MOST + 5


def test_on_a_busy_shard_a_later_record_says_that_it_has_been_read():
    """No page is ever empty there."""
    shard = Shard("a")
    streams = FakeStreams(shard, page=1)
    streams.on_read = lambda _: shard.records.append(like(len(shard.records), user="u", at=streams.clock))
    stream = streams.stream()
    stream.catch_up()
    assert streams.clock - NOW == pytest.approx(STREAM_DELAY_S, abs=1.5)


def test_a_shard_is_read_at_most_five_times_a_second():
    """Several shards may be read at once; each keeps its own pace."""
    streams = FakeStreams(Shard("a", [like(number) for number in range(20)], closed=True), Shard("b", [like(99)]))
    streams.stream().catch_up()
    for shard in "ab":
        times = [call[2] for call in streams.calls if call[:2] == ("read", shard)]
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert min(gaps) >= READ_EVERY_S - 1e-6


@pytest.mark.parametrize(
    "code", ["LimitExceededException", "ProvisionedThroughputExceededException", "InternalServerError"]
)
def test_a_read_that_is_refused_is_tried_again_ever_later(code):
    """A throttle brings no page; so it is not taken for an empty one either."""
    streams = FakeStreams(Shard("a", [like(1)]))
    streams.errors = [client_error(code, operation="GetRecords")] * (EMPTY_READS + 3)
    stream = streams.stream()
    stream.catch_up()
    assert users(stream) == ["u1"]
    assert streams.slept[1] == pytest.approx(2 * streams.slept[0])
    assert max(streams.slept) == pytest.approx(5)


def test_an_expired_iterator_is_taken_anew_behind_the_last_record():
    """An iterator lives for 15 minutes; nothing is lost and nothing comes twice."""
    streams = FakeStreams(Shard("a", [like(number, user=f"u{number}") for number in range(6)]))
    streams.errors = [None, client_error("ExpiredIteratorException", operation="GetRecords")]
    stream = streams.stream()
    stream.catch_up()
    assert users(stream) == [f"u{number}" for number in range(6)]
    assert ("AFTER_SEQUENCE_NUMBER", "a") in streams.calls


def test_records_that_are_trimmed_before_they_are_read_disturb_and_the_next_call_goes_on():
    """The caller reads its parents again; what is behind the gap is found."""
    shard = Shard("a", [like(number, user=f"u{number}") for number in range(8)])
    streams = FakeStreams(shard)
    stream = streams.stream()
    reads = []

    def trim(_):
        reads.append(1)
        if len(reads) == 2:
            shard.trimmed = 5

    streams.on_read = trim
    with pytest.raises(Disturbed, match="trimmed while it was read"):
        stream.catch_up()
    stream.catch_up()
    assert users(stream) == ["u0", "u1", "u5", "u6", "u7"]


def test_a_shard_that_vanishes_before_it_was_read_disturbs_and_its_children_are_read_then():
    """Its records are gone with it."""
    streams = FakeStreams(Shard("a", [like(1)], closed=True), Shard("b", [like(2, user="u2")], parent="a"))
    stream = streams.stream()

    def vanish(name):
        if name == "a":
            del streams.shards["a"]
            raise client_error("ResourceNotFoundException", operation="GetRecords")

    streams.on_read = vanish
    with pytest.raises(Disturbed):
        stream.catch_up()
    stream.catch_up()
    assert users(stream) == ["u2"]


def test_a_child_shard_that_opens_during_the_reading_is_read_too():
    """A shard closes at any time, and what is written then is in its child."""
    first = Shard("a", [like(1)])
    streams = FakeStreams(first)

    def split(_):
        if not first.closed:
            first.closed = True
            streams.shards["b"] = Shard("b", [like(2, user="u2")], parent="a")

    streams.on_read = split
    stream = streams.stream()
    stream.catch_up()
    assert users(stream) == ["u1", "u2"]
    assert stream.shards.open == {"b"}


def test_what_will_not_mend_is_raised():
    """Missing rights, for one, and a stream that is not there."""
    streams = FakeStreams(Shard("a"))
    streams.errors = [client_error("AccessDeniedException", operation="GetRecords")]
    with pytest.raises(Exception, match="AccessDenied"):
        streams.stream().catch_up()
    streams.errors = [client_error("ResourceNotFoundException", operation="GetRecords")]
    with pytest.raises(Exception, match="ResourceNotFound"):
        streams.stream().catch_up()


def test_patience_ends():
    """A function has to answer before its time is over."""
    shard = Shard("a")
    streams = FakeStreams(shard, page=1)
    streams.on_read = lambda _: shard.records.append(like(len(shard.records), at=NOW - 9))  # never at its end
    with pytest.raises(Unjudged, match="within 20 s"):
        streams.stream(patience_s=20).catch_up()
    assert streams.clock - NOW < 22


def test_named_records_are_read_from_the_first_to_the_last():
    """Both ends are among them, whatever lies between, in a closed shard or an open one."""
    for closed in (False, True):
        streams = FakeStreams(Shard("a", [like(number) for number in range(9)], closed=closed))
        found = streams.stream().records("a", f"{3:021d}", f"{6:021d}")
        assert [int(entry["dynamodb"]["SequenceNumber"]) for entry in found] == [3, 4, 5, 6]


def test_named_records_that_are_trimmed_are_said_to_be():
    """The oldest of them is gone, or the whole shard."""
    streams = FakeStreams(Shard("a", [like(number) for number in range(9)], trimmed=4))
    for shard in ("a", "gone"):
        with pytest.raises(Trimmed, match=f"of {shard} any more"):
            streams.stream().records(shard, f"{3:021d}", f"{6:021d}")


def test_named_records_that_never_come_are_given_up():
    """A message may name what the shard does not hold."""
    closed = FakeStreams(Shard("a", [like(number) for number in range(9)], closed=True))
    still_open = FakeStreams(Shard("a", [like(number) for number in range(9)]))
    for streams in (closed, still_open):
        with pytest.raises(Unjudged, match="brings no record 000000000000000000077"):
            streams.stream().records("a", f"{3:021d}", f"{77:021d}")
