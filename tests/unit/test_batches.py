"""Whole batches: each parent once, everything accounted for, and an answer that Lambda takes."""

import collections
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from builders import NOW, SHARD, STREAM_ARN, batch, expired, foreign, like, modify, record, unlike, windowed
from fakes import LOST, FakeDynamoDb, batches_on, client_error, deliver, replay, reported
from tallystream.batches import PAUSES_SECONDS, RESERVE_MS, NoSequenceNumber, NotAStreamEvent
from tallystream.counters import SECONDS_A_MARK_MATTERS

THROTTLE = client_error("ThrottlingException")
DENIED = client_error("AccessDeniedException")
META = ("POST#p1", "META")
LIKES = [like(101, "p1", "u1"), like(102, "p1", "u2"), like(103, "p2", "u1")]


def id_of(number):
    """Return a sequence number as the builders write it."""
    return f"{number:021d}"


def tallies(table):
    """Return every post's tally."""
    return {key[0].removeprefix("POST#"): int(item["likeTally"]["N"]) for key, item in table.items.items()}


def some(figures, *names):
    """Return the figures of these names."""
    return tuple(figures[name] for name in names)


class Clock:
    """What is left of an invocation's time: sleeping uses it up, and so does asking, if it must."""

    def __init__(self, ms, per_question=0):
        self.ms, self.slept, self._per_question = ms, [], per_question

    def remaining(self):
        """Return what is left, in milliseconds."""
        self.ms -= self._per_question
        return self.ms

    def sleep(self, seconds):
        """Use time up."""
        self.slept.append(seconds)
        self.ms -= int(seconds * 1000)


# What a batch does to the table.


@pytest.mark.parametrize("event", [batch, windowed])
def test_b01_a_batch_delivered_twice_counts_once(table, batches, event):
    """The second delivery finds everything counted."""
    first, second = deliver(batches, event(*LIKES)), deliver(batches, event(*LIKES))
    assert tallies(table) == {"p1": 2, "p2": 1}
    assert some(first.figures, "counted", "duplicates", "writes") == (3, 0, 2)
    assert some(second.figures, "counted", "duplicates", "writes") == (0, 3, 0)
    assert reported(first) is reported(second) is None


@pytest.mark.parametrize("fault", [THROTTLE, LOST, DENIED], ids=["throttled", "lost", "raised"])
def test_b01_a_batch_that_failed_half_way_counts_once(table, batches, fault):
    """p1's update goes through, p2's does not, at first: the next delivery brings p2 alone to the right number."""
    table.plant("p2", [fault] * (len(PAUSES_SECONDS) + 1))
    assert replay(batches, windowed(*LIKES)) == []
    assert tallies(table) == {"p1": 2, "p2": 1}


@pytest.mark.parametrize("cuts", [(4,), (1, 3), (2, 2), (3, 1), (1, 1, 1, 1), (4, 1), (2, 3)])
def test_b08_insert_and_remove_of_one_like_cancel_out(table, batches, cuts):
    """However the records are cut, the tally ends at 0, or at 1 where a like comes last."""
    records = iter([like(301), unlike(302), like(303), unlike(304), like(305)])
    for size in cuts:
        deliver(batches, windowed(*itertools.islice(records, size)))
    assert table.tally("p1") == (1 if sum(cuts) == 5 else 0)


def test_b08_changes_that_cancel_out_move_the_mark_alone_and_create_no_post(table, batches):
    """The tally is not touched and no post appears. The mark is what makes the same pair harmless in other company."""
    before = dict(table.items[META])
    report = deliver(batches, windowed(like(1), unlike(2), like(3, "gone"), unlike(4, "gone")))
    (mark,) = table.marks("p1")
    assert table.items.pop(META) == {**before, mark: {"M": {"seq": {"S": "2".zfill(40)}, "at": {"N": str(NOW)}}}}
    assert set(table.items) == {("POST#p2", "META")}
    assert some(report.figures, "counted", "orphaned", "writes", "parents") == (2, 2, 1, 2)


def test_b07_a_late_record_of_a_deleted_post_brings_nothing_back(table, batches):
    """No ghost appears, the record is finished with, and somebody is told."""
    del table.items[META]
    for each in (unlike(202), like(203, user="u2")):
        report = deliver(batches, windowed(each))
        assert reported(report) is None
        assert some(report.figures, "orphaned", "counted", "failed") == (1, 0, 0)
        assert report.notes == [{"note": "orphaned: the parent does not exist", "parent": META, "reason": None}]
    assert META not in table.items


def test_b09_nine_posts_are_counted_though_the_fourth_fails(table):
    """One failure keeps nobody else from being counted, and is itself counted on redelivery."""
    for post in range(10):
        table.add_post(f"n{post}")
    table.plant("n4", [THROTTLE] * (len(PAUSES_SECONDS) + 1))
    batches = batches_on(table)
    event = windowed(*(like(100 + post, f"n{post}") for post in range(10)))
    report = deliver(batches, event)
    assert reported(report) == id_of(104)
    assert {post: tally for post, tally in tallies(table).items() if post[0] == "n"} == {
        f"n{post}": int(post != 4) for post in range(10)
    }
    assert replay(batches, event) == []
    assert {table.tally(f"n{post}") for post in range(10)} == {1}


def test_b09_tallies_and_dead_letters_add_up_to_the_records(table, queue, batches):
    """A post that can never be counted ends on the queue: never neither, never both."""
    table.items[META]["likeTally"] = {"S": "many"}
    assert replay(batches, windowed(*LIKES, like(104, "p2", "u2"))) == []
    assert table.tally("p2") + sum(message["deltas"]["likeTally"] for message in queue.messages) == 4


def test_b05_a_delete_of_nothing_subtracts_nothing():
    """Two deletes at once and one by a stranger make one stream record: 1, then 0, never -1."""
    records = []
    table = FakeDynamoDb(lambda name, key: records.append(record(name, len(records) + 1, key)))
    table.add_post("p1")
    keys = [{"PK": {"S": "POST#p1"}, "SK": {"S": f"LIKE#USER#{user}"}} for user in ("u1", "u9")]
    table.put_item(Item=keys[0])
    batches = batches_on(table)
    deliver(batches, windowed(*records))
    assert table.tally("p1") == 1
    seen = len(records)
    for key in (keys[0], keys[0], keys[1]):
        table.delete_item(Key=key)
    deliver(batches, windowed(*records[seen:]))
    assert table.tally("p1") == 0


def test_b10_b11_b12_b14_b29_a_mixed_batch_counts_what_counts(table, batches):
    """Rewrites, TTL removals, foreign and broken records and the post's own writes, all in one batch."""
    report = deliver(
        batches,
        windowed(
            record("INSERT", 1, META),
            like(2, user="u1"),
            like(3, user="u2"),
            modify(4, user="u1"),
            expired(5, user="u2"),
            foreign(6),
            {"eventName": "BOGUS"},
            like(7, user="u3"),
            record("REMOVE", 8, ("POST#p9", "META")),
        ),
    )
    assert table.tally("p1") == 2
    assert report.figures == {
        "received": 9,
        "counted": 4,
        "ignored": 5,
        "malformed": 2,
        "duplicates": 0,
        "orphaned": 0,
        "failed": 0,
        "uncountable": 0,
        "parents": 1,
        "writes": 1,
        "negative": 0,
    }


def test_b14_a_broken_record_stops_nobody_and_is_shown(table, batches):
    """Its neighbours count, it is not reported, and a note says where it stood and what it was."""
    report = deliver(batches, windowed(like(701), {**like(702), "eventName": "BOGUS"}, like(703, user="u2")))
    assert (table.tally("p1"), reported(report)) == (2, None)
    (note,) = report.notes
    assert (note["note"], note["position"]) == ("malformed record ignored", 1)
    assert "BOGUS" in note["record"]


def test_notes_stay_few_and_short(batches):
    """A batch of ten thousand broken records does not fill the log."""
    report = deliver(batches, batch(*[{"eventName": "x" * 10_000}] * 10_000))
    assert some(report.figures, "malformed", "ignored") == (10_000, 10_000)
    assert len(report.notes) == 20
    assert all(len(note["record"]) <= 500 for note in report.notes)


def test_b15_a_counting_record_without_a_number_is_raised_after_all_others(table, batches):
    """It can neither be marked nor be reported; the others are applied all the same, and only once."""
    event = windowed(like(1), like(None, user="u2"), like(3, "p2"))
    for _ in range(2):
        with pytest.raises(NoSequenceNumber, match=r"1 of 3 records .* at position 1"):
            batches.apply(event, lambda: 60_000)
    assert tallies(table) == {"p1": 1, "p2": 1}


def test_b15_exactly_one_identifier_the_record_s_own_number(table, batches):
    """Not the eventID, not padded, under the key that Lambda reads; an event without eventID is as good."""
    table.plant("p2", itertools.repeat(THROTTLE))
    records = [{name: value for name, value in each.items() if name != "eventID"} for each in LIKES]
    assert deliver(batches, batch(*records)).answer == {"batchItemFailures": [{"itemIdentifier": id_of(103)}]}


def test_b32_a_hot_post_costs_one_update_a_batch(table, batches):
    """10,000 likes in batches of a hundred are a hundred updates."""
    for start in range(0, 10_000, 100):
        deliver(batches, windowed(*(like(number, user=f"u{number}") for number in range(start + 1, start + 101))))
    assert (table.tally("p1"), table.writes()) == (10_000, 100)


def test_one_batch_of_ten_thousand_on_one_post_is_one_write(table, batches):
    """One parent, one UpdateItem."""
    report = deliver(batches, windowed(*(like(number, user=f"u{number}") for number in range(1, 10_001))))
    assert (table.tally("p1"), table.writes(), some(report.figures, "counted", "writes", "parents")) == (
        10_000,
        1,
        (10_000, 1, 1),
    )


def test_ten_thousand_parents_are_one_write_each():
    """Several at a time, each once."""
    table = FakeDynamoDb()
    for post in range(10_000):
        table.add_post(f"n{post}")
    with ThreadPoolExecutor(8) as pool:
        batches = batches_on(table, concurrently=pool.map)
        report = deliver(batches, windowed(*(like(post + 1, f"n{post}") for post in range(10_000))))
    assert (table.writes(), some(report.figures, "counted", "writes", "parents")) == (10_000, (10_000, 10_000, 10_000))
    assert set(tallies(table).values()) == {1}


def test_several_rules_on_one_parent_are_one_write(table):
    """A like and a share of one post go into one update, and one like counts on two parents."""
    rules = """[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},
                {"child": "SHARE#", "parent": "META", "attribute": "shares"},
                {"child": "LIKE#USER#{user}", "parent": "FAN#{user}", "attribute": "given"}]"""
    table.items["POST#p1", "FAN#u1"] = {"PK": {"S": "POST#p1"}, "SK": {"S": "FAN#u1"}}
    report = deliver(batches_on(table, rules=rules), windowed(like(1), record("INSERT", 2, ("POST#p1", "SHARE#s1"))))
    assert (table.tally("p1"), table.tally("p1", "shares"), table.writes()) == (1, 1, 2)
    assert table.items["POST#p1", "FAN#u1"]["given"] == {"N": "1"}
    assert some(report.figures, "received", "counted", "parents") == (2, 2, 2)


def test_a_record_is_where_it_fared_worse(table):
    """Counted on one parent and orphaned, or failed, on another: the figures still add up."""
    rules = """[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},
                {"child": "LIKE#USER#{user}", "parent": "FAN#{user}", "attribute": "given"}]"""
    table.items["POST#p1", "FAN#u2"] = {"PK": {"S": "POST#p1"}, "SK": {"S": "FAN#u2"}}
    table.plant("p1", itertools.repeat(THROTTLE), "FAN#u2")
    table.plant("gone", itertools.repeat(THROTTLE), "FAN#u3")
    batches = batches_on(table, rules=rules)
    report = deliver(batches, windowed(like(1), like(2, user="u2"), like(3, "gone", "u3")))
    assert some(report.figures, "orphaned", "failed", "counted") == (1, 2, 0)
    assert (table.tally("p1"), reported(report)) == (2, id_of(2))


def test_repeated_records_in_one_batch_are_duplicates(table, batches):
    """They are counted once, and the figures say so."""
    report = deliver(batches, windowed(like(1), like(1), like(2, user="u2"), like(1)))
    assert (table.tally("p1"), some(report.figures, "counted", "duplicates")) == (2, (2, 2))


def test_a_repeated_record_whose_parent_fails_leaves_the_figures_whole(table, batches):
    """The repetition is a duplicate of a record that failed."""
    table.plant("p1", itertools.repeat(THROTTLE))
    report = deliver(batches, windowed(like(1), like(1)))
    assert some(report.figures, "failed", "duplicates") == (1, 1)


def test_a_negative_tally_is_told(table, batches):
    """One note and one figure; nothing is clamped."""
    report = deliver(batches, windowed(unlike(1), like(2, "p2")))
    assert (table.tally("p1"), report.figures["negative"]) == (-1, 1)
    assert report.notes == [{"note": "negative tally", "parent": META, "reason": None}]


# Lanes.


@pytest.mark.parametrize(
    ("event", "mark"),
    [
        (windowed(like(1)), "mark#" + SHARD.removeprefix("shardId-")),
        (batch(like(1)), "mark#stream"),
        ({**batch(like(1)), "shardId": ""}, "mark#stream"),
        ({**batch(like(1)), "shardId": None}, "mark#stream"),
        (windowed(like(1), shard="shardId-7"), "mark#7"),
    ],
    ids=["window", "no window", "empty", "null", "other"],
)
def test_marks_stand_in_the_lane_of_the_shard(table, batches, event, mark):
    """With the shard's id where the event has one, else in the lane `stream`."""
    batches.apply(event, lambda: 60_000)
    assert list(table.marks("p1")) == [mark]


def test_two_shards_of_one_post_do_not_hide_each_other(table, batches):
    """A higher number from one shard leaves a lower one from another to be counted."""
    deliver(batches, windowed(like(500), shard="shardId-a"))
    deliver(batches, windowed(like(400, user="u2"), shard="shardId-b"))
    deliver(batches, windowed(like(500), shard="shardId-a"))
    assert table.tally("p1") == 2


@pytest.mark.parametrize(
    ("stamp", "kept"),
    [
        (NOW - 10, NOW - 10),
        (NOW - 10.75, NOW - 11),
        (NOW - 24 * 3600, NOW - 24 * 3600),
        (NOW - 24 * 3600 - 1, NOW),
        (NOW + 5, NOW),
        (NOW * 1000, NOW),
        (0, NOW),
        (True, NOW),
        (float("nan"), NOW),
        (float("inf"), NOW),
        (str(NOW - 10), NOW),
        (None, NOW),
    ],
)
def test_a_mark_is_as_old_as_its_last_change(table, batches, stamp, kept):
    """A stamp that cannot be is not believed: a mark must not be taken for stale while it matters."""
    deliver(batches, windowed(like(1, at=NOW - 20), like(2, user="u2", at=stamp)))
    ((_, mark),) = table.marks("p1").items()
    assert mark["at"] == {"N": str(kept)}


def test_a_stale_mark_goes_with_the_parent_s_next_write(table, batches):
    """Seen by one batch, removed by the next at no write more."""
    old = {"M": {"seq": {"S": "1".zfill(40)}, "at": {"N": str(NOW - SECONDS_A_MARK_MATTERS - 1)}}}
    table.items[META]["mark#old"] = old
    deliver(batches, windowed(like(1)))
    assert "mark#old" in table.marks("p1")
    deliver(batches, windowed(like(2, user="u2")))
    assert "mark#old" not in table.marks("p1")
    assert (table.tally("p1"), table.writes()) == (2, 2)


def test_remembered_marks_stay_bounded(table, batches):
    """What is remembered from batch to batch has an end, and losing it costs nothing but a later removal."""
    batches.stale.update({(f"POST#n{n}", "META"): ("mark#old",) for n in range(10_000)})
    old = {"M": {"seq": {"S": "1".zfill(40)}, "at": {"N": "1"}}}
    table.items[META]["mark#old"] = old
    deliver(batches, windowed(like(1)))
    assert batches.stale == {META: ("mark#old",)}


# The answer.


@pytest.mark.parametrize("final", [False, True])
def test_a_window_without_records_is_answered_with_its_state(batches, final):
    """The last invocation of a window may have none, or no list at all."""
    empty = windowed(final=final)
    assert deliver(batches, empty).answer == {"batchItemFailures": [], "state": {}}
    del empty["Records"]
    assert batches.apply(empty, lambda: 60_000).answer == {"batchItemFailures": [], "state": {}}


def test_the_state_goes_with_a_failure_too_and_only_with_a_window(table, batches):
    """Without it, Lambda takes the invocation of a window for a failed one."""
    table.plant("p1", itertools.repeat(THROTTLE))
    failures = [{"itemIdentifier": id_of(1)}]
    assert deliver(batches, windowed(like(1))).answer == {"batchItemFailures": failures, "state": {}}
    assert deliver(batches, batch(like(1))).answer == {"batchItemFailures": failures}


@pytest.mark.parametrize(
    "event",
    [{}, {"Records": None}, {"Records": {}}, {"Records": "x"}, {"records": []}, {**windowed(), "Records": None}],
)
def test_an_event_that_is_no_batch_is_raised(batches, event):
    """A wrong event source is a bug to be seen, not an empty batch."""
    with pytest.raises(NotAStreamEvent, match="Records"):
        batches.apply(event, lambda: 60_000)


@pytest.mark.parametrize(
    ("records", "failing", "expected"),
    [
        ([like(1), like(2, "p2"), like(3, user="u3")], ["p1"], 1),
        ([like(1), like(2, "p2"), like(3, user="u3")], ["p2"], 2),
        ([like(1), like(2, "p2"), like(3, user="u3")], ["p1", "p2"], 1),
        ([like(9), like(2, "p2"), like(3, user="u3")], ["p1"], 3),
        ([like(1), like(10, "p2"), like(9, "p2", "u2")], ["p2"], 9),
        ([like("10"), like("9", "p2")], ["p1", "p2"], "9"),
        ([like("000010"), like("9", "p2")], ["p1"], "000010"),
    ],
)
def test_the_lowest_number_that_is_left_is_reported(table, batches, records, failing, expected):
    """Lowest as a number, and written as the record has it."""
    for post in failing:
        table.plant(post, itertools.repeat(THROTTLE))
    expected = expected if isinstance(expected, str) else id_of(expected)
    assert reported(deliver(batches, windowed(*records))) == expected


def test_what_is_in_already_is_not_reported_again(table, batches):
    """A share whose first half is below the mark is reported from its second half on."""
    deliver(batches, windowed(like(1)))
    table.plant("p1", [None, *[THROTTLE] * 20])
    report = deliver(batches, windowed(like(1), like(2, user="u2"), like(3, user="u3")))
    assert reported(report) == id_of(2)
    assert some(report.figures, "duplicates", "failed") == (1, 2)


# Retries.


@pytest.mark.parametrize("fault", [THROTTLE, LOST, client_error("TransactionConflictException")], ids=str)
def test_b32_a_passing_throttle_is_waited_out(table, queue, fault):
    """Twice refused, then counted: the answer reports nothing, and only the refused parent is tried again."""
    clock = Clock(60_000)
    table.plant("p1", [fault, fault])
    report = deliver(batches_on(table, queue, sleep=clock.sleep), windowed(*LIKES), clock.remaining)
    assert (reported(report), tallies(table), clock.slept) == (None, {"p1": 2, "p2": 1}, [0.05, 0.1])
    assert collections.Counter(key[0] for _, key in table.calls) == {"POST#p1": 3, "POST#p2": 1}


def test_b32_a_lasting_throttle_is_reported(table):
    """After the last pause it is Lambda's turn; the time is not all used up by waiting."""
    clock = Clock(60_000)
    table.plant("p1", itertools.repeat(THROTTLE))
    report = deliver(batches_on(table, sleep=clock.sleep), windowed(*LIKES), clock.remaining)
    assert (reported(report), clock.slept) == (id_of(101), list(PAUSES_SECONDS))
    assert some(report.figures, "failed", "counted", "uncountable") == (2, 1, 0)
    assert [(note["note"], note["parent"]) for note in report.notes] == [("failed: to be delivered again", META)]
    assert "ThrottlingException" in report.notes[0]["reason"]


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_pauses_are_jittered_between_half_and_all(table, jitter, share):
    """Invocations that were refused together do not come back together."""
    clock = Clock(60_000)
    table.plant("p1", [THROTTLE] * 3)
    deliver(batches_on(table, sleep=clock.sleep, jitter=lambda: jitter), windowed(like(1)), clock.remaining)
    assert clock.slept == pytest.approx([pause * share for pause in PAUSES_SECONDS[:3]])


def test_no_pause_goes_into_the_reserve(table):
    """With too little time for the next pause the answer goes at once."""
    clock = Clock(RESERVE_MS + 200)
    table.plant("p1", itertools.repeat(THROTTLE))
    report = deliver(batches_on(table, sleep=clock.sleep), windowed(like(1)), clock.remaining)
    assert (reported(report), clock.slept) == (id_of(1), [0.05, 0.1])
    assert clock.ms >= RESERVE_MS


def test_no_update_is_begun_without_time(table, batches):
    """What was not tried is reported, and says why."""
    report = deliver(batches, windowed(*LIKES), lambda: RESERVE_MS)
    assert (table.calls, reported(report)) == ([], id_of(101))
    assert {note["reason"] for note in report.notes} == {"no time left"}
    assert report.figures["failed"] == 3


def test_running_out_of_time_half_way_keeps_what_was_done(table):
    """The first parents are counted, the others reported; a later delivery is exact."""
    for post in range(6):
        table.add_post(f"n{post}")
    records = [like(post + 1, f"n{post}") for post in range(6)]
    clock = Clock(RESERVE_MS + 35, per_question=10)
    batches = batches_on(table)
    report = deliver(batches, windowed(*records), clock.remaining)
    assert (reported(report), table.writes()) == (id_of(4), 3)
    assert replay(batches, windowed(*records)) == []
    assert {table.tally(f"n{post}") for post in range(6)} == {1}


@pytest.mark.parametrize("error", [DENIED, RuntimeError("bug")], ids=["denied", "bug"])
def test_unexpected_errors_are_raised(table, batches, error):
    """Never swallowed, never turned into an answer: Lambda and its alarm must see them."""
    table.plant("p1", [error])
    with pytest.raises(type(error)):
        batches.apply(windowed(*LIKES), lambda: 60_000)


def test_unexpected_errors_are_raised_from_threads_too(table):
    """A pool keeps an error until its result is asked for: it is asked for."""
    table.plant("p2", [DENIED])
    with ThreadPoolExecutor(2) as pool, pytest.raises(type(DENIED)):
        batches_on(table, concurrently=pool.map).apply(windowed(*LIKES), lambda: 60_000)


# Poison.


def test_b14_a_parent_that_can_never_be_counted_goes_to_the_queue(table, queue, batches):
    """With all that a repair needs; its shard goes on, its neighbours are counted, and nothing is tried twice."""
    table.items[META]["likeTally"] = {"S": "many"}
    report = deliver(
        batches, windowed(like(101), like(102, "p2"), unlike(103), like(104, user="u2"), like(105, user="u3"))
    )
    assert (reported(report), table.tally("p2"), table.writes()) == (None, 1, 2)
    (message,) = queue.messages
    reason = message.pop("reason")
    assert message == {
        "parent": {"PK": "POST#p1", "SK": "META"},
        "deltas": {"likeTally": 2},
        "shard": SHARD,
        "first": id_of(101),
        "last": id_of(105),
        "streamArn": STREAM_ARN,
    }
    assert "ValidationException" in reason
    assert some(report.figures, "counted", "failed", "uncountable") == (1, 4, 4)
    assert report.notes == [{"note": "uncountable: on the failure queue", "parent": META, "reason": reason}]


def test_b20_a_message_of_the_lane_without_shards_says_so(table, queue, batches):
    """The same members as ever, so that one reader reads them; a missing ARN is null."""
    table.items[META]["mark#stream"] = {"S": "foreign"}
    bare = {name: value for name, value in like(7).items() if name != "eventSourceARN"}
    deliver(batches, batch(bare))
    (message,) = queue.messages
    assert set(message) == {"parent", "deltas", "shard", "first", "last", "streamArn", "reason"}
    assert (message["shard"], message["first"], message["last"], message["streamArn"]) == (
        "stream",
        id_of(7),
        id_of(7),
        None,
    )
    assert "mark#stream" in message["reason"]


def test_poison_found_after_a_partial_overlap_tells_only_what_is_left(table, queue, batches):
    """What is in already is no part of the message."""
    deliver(batches, windowed(like(1)))
    table.plant("p1", [None, client_error("ValidationException")])
    report = deliver(batches, windowed(like(1), like(2, user="u2"), like(3, user="u3")))
    (message,) = queue.messages
    assert (message["first"], message["deltas"]) == (id_of(2), {"likeTally": 2})
    assert some(report.figures, "duplicates", "failed", "uncountable") == (1, 2, 2)


class QueueDown:
    """A queue that takes nothing, so many times."""

    def __init__(self, times, then=None):
        self.left, self._then = times, then

    def send_message(self, **request):
        """Refuse, or hand on."""
        self.left -= 1
        if self.left >= 0:
            raise client_error("ServiceUnavailable", operation="SendMessage")
        return self._then.send_message(**request)


def test_poison_with_the_queue_down_is_reported_not_lost(table):
    """Neither counted nor on the queue: it is delivered again."""
    table.items[META]["likeTally"] = {"S": "many"}
    report = deliver(batches_on(table, QueueDown(1000)), windowed(*LIKES))
    assert (reported(report), table.tally("p2")) == (id_of(101), 1)
    assert some(report.figures, "failed", "uncountable") == (2, 0)
    assert "queue" in report.notes[0]["reason"]


def test_poison_with_the_queue_down_for_a_moment_is_sent_in_the_next_round(table, queue):
    """One message, nothing reported."""
    table.items[META]["likeTally"] = {"S": "many"}
    report = deliver(batches_on(table, QueueDown(2, queue)), windowed(*LIKES))
    assert (reported(report), len(queue.messages), report.figures["uncountable"]) == (None, 1, 2)


@pytest.mark.parametrize("mended", ["repaired", "deleted"])
def test_poison_that_is_mended_while_the_queue_is_down_is_settled_as_usual(table, queue, mended):
    """The next round finds a good tally, or no post: no message is needed any more."""

    def mend(_):
        if mended == "repaired":
            table.items[META]["likeTally"] = {"N": "0"}
        else:
            table.items.pop(META, None)

    table.items[META]["likeTally"] = {"S": "many"}
    report = deliver(batches_on(table, QueueDown(1, queue), sleep=mend), windowed(*LIKES))
    assert (reported(report), queue.messages) == (None, [])
    assert some(report.figures, "counted", "orphaned", "failed") == ((3, 0, 0) if mended == "repaired" else (1, 2, 0))


# Changes that cancel out. Each of these is a way in which a pair's records meet the table apart.


def test_a_pair_torn_by_the_checkpoint_is_marked(table, batches):
    """The unlike comes again, alone: only a mark says that it is in already, with the like that it takes back."""
    table.plant("p2", [THROTTLE] * 8)
    event = windowed(like(1), like(2, "p2"), unlike(3))
    report = deliver(batches, event)
    assert (reported(report), table.tally("p1")) == (id_of(2), 0)
    report = deliver(batches, {**event, "Records": event["Records"][1:]})
    assert (tallies(table), some(report.figures, "counted", "duplicates")) == ({"p1": 0, "p2": 1}, (1, 1))


def test_a_pair_that_cannot_be_marked_is_reported(table, batches):
    """It changes no tally, but what is not marked is not settled."""
    table.plant("p1", itertools.repeat(THROTTLE))
    report = deliver(batches, windowed(like(1), like(2, "p2"), unlike(3)))
    assert (reported(report), some(report.figures, "failed", "counted")) == (id_of(1), (2, 1))


def test_pairs_that_tear_one_another_are_exact(table, batches):
    """Two pairs fail and lie across each other and across a third: every redelivery starts within one of them."""
    for post in ("a", "b", "c"):
        table.add_post(post)
    table.plant("c", [THROTTLE] * 8)
    table.plant("b", [THROTTLE] * 8)
    event = windowed(like(1, "a"), like(2, "b"), unlike(3, "a"), like(4, "c"), unlike(5, "b"))
    report = deliver(batches, event)
    assert (reported(report), some(report.figures, "failed", "counted")) == (id_of(2), (3, 2))
    assert replay(batches, {**event, "Records": event["Records"][1:]}) == []
    assert {post: table.tally(post) for post in "abc"} == {"a": 0, "b": 0, "c": 1}


def test_pairs_of_a_batch_that_was_raised_are_exact_in_halves(table, batches):
    """Lambda halves a batch that raised: the pair's halves come one after the other."""
    table.plant("p2", [DENIED])
    records = [like(1), like(2, "p2"), unlike(3)]
    with pytest.raises(type(DENIED)):
        batches.apply(windowed(*records), lambda: 60_000)
    for half in (records[:1], records[1:]):
        deliver(batches, windowed(*half))
    assert tallies(table) == {"p1": 0, "p2": 1}


def test_a_pair_that_grew_together_after_half_of_it_was_counted_is_exact(table, batches):
    """The first delivery counts the like and then fails; a mapping that starts again reads on further, to the unlike.

    The batch's own records cancel out, yet one of them is in the tally already: only the mark in the table tells.
    """
    table.plant("p2", [DENIED])
    with pytest.raises(type(DENIED)):
        batches.apply(windowed(like(1), like(2, "p2")), lambda: 60_000)
    assert table.tally("p1") == 1
    deliver(batches, windowed(like(1), like(2, "p2"), unlike(3)))
    assert tallies(table) == {"p1": 0, "p2": 1}
