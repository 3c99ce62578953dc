"""One parent's share of a batch: the request that keeps it exact, and what every answer leads to."""

import itertools
import re

import pytest

from builders import NOW, SHARD
from fakes import LOST, FaultyDynamoDb, client_error
from tallystream.changes import padded
from tallystream.counters import (
    MOST_STALE_MARKS,
    SECONDS_A_MARK_MATTERS,
    Answer,
    Retryable,
    Share,
    Uncountable,
    count,
    mark_name,
)
from tallystream.dynamodb import DynamoDbTable

P1 = ("POST#p1", "META")
MARK = "mark#00000001769432789123-0a1b2c3d"
STALE = NOW - SECONDS_A_MARK_MATTERS - 1


def share(*changes, parent=P1):
    """Return a share of (number, delta) or (number, delta, attribute)."""
    left = [
        (padded(str(change[0])), change[2] if len(change) > 2 else "likeTally", change[1], position)
        for position, change in enumerate(changes)
    ]
    return Share(parent, left, NOW - 1)


def mark(number, at=NOW):
    """Return a mark as the table holds it."""
    return {"M": {"seq": {"S": padded(str(number))}, "at": {"N": str(at)}}}


def counted(table, share, lane=SHARD, stale=()):
    """Count a share and return it; no change is ever lost from sight."""
    before = list(share.left)
    count(DynamoDbTable(table, "T"), share, lane, NOW, stale)
    assert sorted(share.left + share.counted + share.duplicates + share.orphaned) == sorted(before)
    assert not share.left or share.uncountable
    return share


def numbers(changes):
    """Return the sequence numbers of changes."""
    return [int(change[0]) for change in changes]


class Recorder:
    """A table that answers as told and keeps the requests."""

    def __init__(self, *answers):
        self.requests = []
        self._answers = iter(answers)

    def update(self, request):
        """Keep the request and give the next answer."""
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_the_request_adds_the_delta_and_moves_the_mark_under_one_condition():
    """One UpdateItem holds all of it, in a form that DynamoDB compares and adds exactly."""
    table = Recorder(Answer(written=True, item={}))
    count(table, share((101, 1), (102, 1), (105, -1), (107, 1)), SHARD, NOW)
    assert table.requests == [
        {
            "Key": {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}},
            "UpdateExpression": "SET #mark = :mark ADD #a0 :d0",
            "ConditionExpression": "attribute_exists(PK) AND (attribute_not_exists(#mark) OR #mark.#seq < :first)",
            "ExpressionAttributeNames": {"#mark": MARK, "#seq": "seq", "#a0": "likeTally"},
            "ExpressionAttributeValues": {
                ":first": {"S": "0" * 37 + "101"},
                ":mark": {"M": {"seq": {"S": "0" * 37 + "107"}, "at": {"N": str(NOW - 1)}}},
                ":d0": {"N": "2"},
            },
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    ]


def test_b26_deltas_are_whole_numbers():
    """What is sent as a number is digits with at most a sign."""
    table = Recorder(Answer(written=True, item={}))
    count(table, share((1, 1, "a"), (2, -1, "b"), (3, 1, "a")), SHARD, NOW)
    values = table.requests[0]["ExpressionAttributeValues"]
    assert {name: value["N"] for name, value in values.items() if "N" in value} == {":d0": "2", ":d1": "-1"}
    assert re.fullmatch(r"\d+", values[":mark"]["M"]["at"]["N"])


@pytest.mark.parametrize(
    ("lane", "name"),
    [("stream", "mark#stream"), (SHARD, MARK), ("shardId-1", "mark#1"), ("other-shardId-1", "mark#other-shardId-1")],
)
def test_a_lane_s_mark_is_named_after_its_shard(lane, name):
    """The name is the contract with the audit."""
    assert mark_name(lane) == name


def test_several_attributes_of_one_parent_are_one_write(table):
    """Deltas of several attributes go together, one that cancels out as a zero: it has a tally too."""
    done = counted(table, share((1, 1, "likeTally"), (1, 1, "actions"), (2, -1, "actions"), (3, 1, "shares")))
    assert table.writes() == done.writes == 1
    assert table.items[P1] == {
        "PK": {"S": "POST#p1"},
        "SK": {"S": "META"},
        "likeTally": {"N": "1"},
        "actions": {"N": "0"},
        "shares": {"N": "1"},
        MARK: mark(3, NOW - 1),
    }


@pytest.mark.parametrize(
    ("reached", "fresh", "again", "tally"),
    [
        (None, [101, 103, 107], [], 3),
        (1, [101, 103, 107], [], 3),
        (100, [101, 103, 107], [], 3),
        (101, [103, 107], [101], 2),
        (102, [103, 107], [101], 2),
        (103, [107], [101, 103], 1),
        (106, [107], [101, 103], 1),
        (107, [], [101, 103, 107], 0),
        (108, [], [101, 103, 107], 0),
        (10**39, [], [101, 103, 107], 0),
    ],
)
def test_b01_only_what_lies_above_the_mark_is_added(table, reached, fresh, again, tally):
    """Below, at, between or above the share: the tally and the mark end as if each record had come once."""
    if reached is not None:
        table.items[P1][MARK] = mark(reached)
    done = counted(table, share((101, 1), (103, 1), (107, 1)))
    assert (numbers(done.counted), numbers(done.duplicates)) == (fresh, again)
    assert table.tally("p1") == tally
    assert table.marks("p1")[MARK]["seq"]["S"] == padded(str(max(reached or 0, 107)))
    assert table.writes() == 1 + bool(again and fresh)
    assert done.writes == bool(fresh)


def test_b01_marks_of_other_shards_say_nothing_about_this_one(table):
    """Each shard has its own mark, and a write leaves the others where they are."""
    table.items[P1]["mark#other"] = mark(999)
    counted(table, share((101, 1)))
    counted(table, share((101, 1)), lane="stream")
    assert table.tally("p1") == 2
    assert {name: int(value["seq"]["S"]) for name, value in table.marks("p1").items()} == {
        "mark#other": 999,
        MARK: 101,
        "mark#stream": 101,
    }


def test_b07_a_parent_that_is_gone_is_orphaned_and_never_brought_back():
    """No item appears, nothing is left to do, and there is one try."""
    table = FaultyDynamoDb()
    done = counted(table, share((202, -1), (203, 1)))
    assert numbers(done.orphaned) == [202, 203]
    assert (table.items, table.writes(), done.writes, done.uncountable) == ({}, 1, 0, None)


def test_b07_a_parent_that_goes_between_two_tries_is_orphaned():
    """Partly in, then gone: the rest is orphaned and the first part stays a duplicate."""
    old = Answer(written=False, item={MARK: mark(101)})
    script = Recorder(old, Answer(written=False, item=None))
    part = share((101, 1), (102, 1))
    count(script, part, SHARD, NOW)
    assert (numbers(part.duplicates), numbers(part.orphaned), part.left) == ([101], [102], [])


def test_b03_a_write_whose_answer_was_lost_is_found_to_be_in(table):
    """Sent again, as the SDK or Lambda do, it adds nothing."""
    table.plant("p1", [LOST])
    part = share((101, 1), (102, 1))
    with pytest.raises(Retryable):
        count(DynamoDbTable(table, "T"), part, SHARD, NOW)
    assert (len(part.left), table.tally("p1")) == (2, 2)
    done = counted(table, part)
    assert (numbers(done.duplicates), done.counted, done.writes, table.tally("p1")) == ([101, 102], [], 0, 2)


def test_a_share_that_was_partly_settled_goes_on_where_it_stood(table):
    """A throttle after the refusal loses nothing: called again, the rest is counted once."""
    table.items[P1][MARK] = mark(101)
    table.plant("p1", [None, client_error("ThrottlingException")])
    part = share((101, 1), (102, 1))
    with pytest.raises(Retryable):
        count(DynamoDbTable(table, "T"), part, SHARD, NOW)
    assert (numbers(part.duplicates), numbers(part.left)) == ([101], [102])
    count(DynamoDbTable(table, "T"), part, SHARD, NOW)
    assert (numbers(part.duplicates), numbers(part.counted), table.tally("p1")) == ([101], [102], 1)


@pytest.mark.parametrize(
    "foreign",
    [
        {"S": "101"},
        {"NULL": True},
        {"M": {}},
        {"M": {"seq": {"N": "5"}}},
        {"M": {"seq": {"S": "abc"}}},
        {"M": {"seq": {"S": "9" * 41}}},
        {"M": {"seq": {"S": "99"}, "at": {"N": "1"}}},
        {"L": [{"S": "1"}]},
    ],
)
def test_a_mark_that_this_program_did_not_write_is_no_endless_loop(table, foreign):
    """What cannot be compared is refused for ever: it is uncountable, and untouched."""
    table.items[P1][MARK] = foreign
    done = counted(table, share((101, 1), (102, 1)))
    assert MARK in done.uncountable
    assert (numbers(done.left), table.writes(), table.tally("p1")) == ([101, 102], 1, 0)
    assert table.items[P1][MARK] == foreign


def test_a_tally_that_is_no_number_is_uncountable(table):
    """DynamoDB's reason is kept; nothing is written."""
    table.items[P1]["likeTally"] = {"S": "many"}
    done = counted(table, share((101, 1)))
    assert "ValidationException" in done.uncountable
    assert (numbers(done.left), table.marks("p1")) == ([101], {})


@pytest.mark.parametrize("error", [RuntimeError("bug"), client_error("AccessDeniedException")], ids=["bug", "denied"])
def test_unexpected_errors_are_raised(error):
    """What is neither worth a retry nor the parent's own fault is for Lambda to see."""
    with pytest.raises(type(error)):
        count(Recorder(error), share((1, 1)), SHARD, NOW)


@pytest.mark.parametrize(
    ("before", "deltas", "after", "negative"),
    [("0", [-1], -1, True), ("0", [1], 1, False), ("1", [-1], 0, False), ("-5", [1], -4, True), ("-1", [1], 0, False)],
)
def test_a_tally_below_zero_is_kept_and_told(table, before, deltas, after, negative):
    """No clamp: a clamp would turn a passing fault into a lasting drift."""
    table.items[P1]["likeTally"] = {"N": before}
    done = counted(table, share(*enumerate(deltas, start=1)))
    assert (table.tally("p1"), done.negative) == (after, negative)


def test_a_negative_number_elsewhere_in_the_item_is_no_alarm(table):
    """Only the attributes that were counted on are tallies."""
    table.items[P1]["temperature"] = {"N": "-3"}
    assert not counted(table, share((1, 1))).negative


# Stale marks.


def with_marks(table, stale, fresh=0):
    """Give post p1 so many stale marks, and fresh ones that are just young enough to matter."""
    table.items[P1] |= {f"mark#old{n}": mark(1, STALE) for n in range(stale)}
    table.items[P1] |= {f"mark#new{n}": mark(1, STALE + 1) for n in range(fresh)}


def test_stale_marks_are_seen_and_left_to_the_next_write(table):
    """A few cost nothing: the write that sees them says so, and the parent's next write removes them on the way."""
    with_marks(table, 2, fresh=1)
    seen = counted(table, share((101, 1))).stale
    assert set(seen) == {"mark#old0", "mark#old1"}
    assert set(table.marks("p1")) == {*seen, "mark#new0", MARK}
    done = counted(table, share((102, 1)), stale=seen)
    assert set(table.marks("p1")) == {"mark#new0", MARK}
    assert (table.tally("p1"), table.writes(), done.stale) == (2, 2, ())


def test_the_lane_s_own_mark_is_never_stale(table):
    """However old: it is moved by the same write, and a write cannot both set and remove it."""
    table.items[P1][MARK] = mark(101, STALE)
    done = counted(table, share((101, 1), (102, 1)))
    assert (numbers(done.counted), done.stale, table.marks("p1")[MARK]) == ([102], (), mark(102, NOW - 1)["M"])


@pytest.mark.parametrize("foreign", [{"S": "x"}, {"M": {}}, {"M": {"seq": {"S": "1"}}}, {"M": {"at": {"S": "x"}}}])
def test_a_foreign_attribute_that_looks_like_a_mark_is_left_alone(table, foreign):
    """Without a time there is no saying that it is stale."""
    table.items[P1]["mark#foreign"] = foreign
    assert counted(table, share((101, 1))).stale == ()
    assert table.items[P1]["mark#foreign"] == foreign


@pytest.mark.parametrize("stale", [MOST_STALE_MARKS - 1, MOST_STALE_MARKS, 20])
def test_many_stale_marks_are_cleaned_at_once(table, stale):
    """From so many on, a write of its own removes them: an item must not grow where nobody remembers them."""
    with_marks(table, stale, fresh=3)
    done = counted(table, share((101, 1)))
    cleaned = stale >= MOST_STALE_MARKS
    assert len(table.marks("p1")) == (4 if cleaned else stale + 4)
    assert (done.writes, len(done.stale)) == ((2, 0) if cleaned else (1, stale))
    assert table.tally("p1") == 1


def test_a_mark_that_its_shard_renewed_meanwhile_is_not_removed(table):
    """Removed, a redelivery from that shard would count twice. The share itself is counted all the same."""
    with_marks(table, 1)
    table.items[P1]["mark#old0"] = mark(50, NOW)
    done = counted(table, share((101, 1)), stale=("mark#old0",))
    assert table.marks("p1")["mark#old0"] == mark(50, NOW)["M"]
    assert (numbers(done.counted), table.tally("p1"), table.writes(), done.writes) == ([101], 1, 2, 1)


def test_a_mark_that_somebody_else_removed_is_no_obstacle(table):
    """Gone is as good as stale."""
    counted(table, share((101, 1)), stale=("mark#old0",))
    assert (table.tally("p1"), table.writes()) == (1, 1)


def test_a_renewed_mark_and_a_partial_overlap_at_once(table):
    """Both reasons for one refusal are dealt with in one more try."""
    table.items[P1] |= {MARK: mark(101), "mark#old0": mark(50, NOW), "mark#old1": mark(1, STALE)}
    done = counted(table, share((101, 1), (102, 1)), stale=("mark#old0", "mark#old1"))
    assert (numbers(done.counted), numbers(done.duplicates), table.writes()) == ([102], [101], 2)
    assert set(table.marks("p1")) == {MARK, "mark#old0"}


def test_marks_that_are_renewed_again_and_again_are_still_no_endless_loop():
    """Each refusal ends with fewer marks to remove, so that the tries are as many as the marks at most."""
    renewed = [f"mark#old{n}" for n in range(3)]
    old = {name: mark(1, STALE) for name in renewed}
    answers = [Answer(written=False, item={**old, **{name: mark(2) for name in renewed[: n + 1]}}) for n in range(3)]
    script = Recorder(*answers, Answer(written=True, item={}))
    part = share((101, 1))
    count(script, part, SHARD, NOW, renewed)
    assert (numbers(part.counted), len(script.requests)) == ([101], 4)


def test_the_cleaning_write_loses_no_mark_that_was_renewed_meanwhile(table):
    """Its condition fails, the marks stay, and what was counted stays counted."""
    with_marks(table, MOST_STALE_MARKS)
    original = table.update_item

    def renewing(**request):
        if request["UpdateExpression"].startswith("REMOVE"):
            table.items[P1]["mark#old3"] = mark(50, NOW)
        return original(**request)

    table.update_item = renewing
    done = counted(table, share((101, 1)))
    assert len(table.marks("p1")) == MOST_STALE_MARKS + 1
    assert (table.tally("p1"), done.writes, len(done.stale)) == (1, 1, MOST_STALE_MARKS)


@pytest.mark.parametrize("error", [Retryable("throttled"), Uncountable("too large an expression")], ids=type)
def test_a_cleaning_write_that_fails_takes_nothing_back(error):
    """The share is counted; whatever comes of the cleaning, none of it is left to be delivered again."""
    old = {f"mark#old{n}": mark(1, STALE) for n in range(MOST_STALE_MARKS)}
    part = share((101, 1))
    try:
        count(Recorder(Answer(written=True, item=old), error), part, SHARD, NOW)
    except Retryable:
        assert isinstance(error, Retryable)
    assert (numbers(part.counted), part.left) == ([101], [])


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "found"])
def test_more_stale_marks_than_one_expression_holds_are_removed_in_parts(table, remembered):
    """An expression has at most 4 KB and 300 operators: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html.

    A post liked from many shards for a day, then left alone for another, has them all stale at once.
    """
    with_marks(table, 300)
    original = table.update_item

    def limited(**request):
        texts = request["UpdateExpression"], request["ConditionExpression"]
        if any(len(text.encode()) > 4096 or len(re.findall(r"[(=<]|AND|OR|,", text)) > 300 for text in texts):
            raise client_error("ValidationException", "Expression size has exceeded the maximum allowed size")
        return original(**request)

    table.update_item = limited
    stale = [f"mark#old{n}" for n in range(300)] if remembered else ()
    done = counted(table, share((101, 1)), stale=stale)
    assert (numbers(done.counted), table.tally("p1"), done.uncountable) == ([101], 1, None)
    for number in itertools.count(102):
        done = counted(table, share((number, 1)), stale=done.stale)
        if set(table.marks("p1")) == {MARK}:
            break
        assert number < 402
