"""The judgement of one parent, and the repair: what each kind of change, mark and tally leads to."""

import pytest

from builders import NOW
from fakes import FakeDynamoDb
from tallystream.audit import (
    REPAIR_MARK,
    Disturbed,
    Keys,
    Mark,
    Reading,
    Shards,
    Streamed,
    Unjudged,
    judge,
    judge_at_rest,
    last_repair,
    repair,
)
from tallystream.changes import padded
from tallystream.counters import SECONDS_A_MARK_MATTERS, Answer, Share, count
from tallystream.dynamodb import DynamoDbTable
from tallystream.rules import DEFAULT_COUNTERS, Rules

LIKES = Rules.parse(DEFAULT_COUNTERS)
REPLIES = Rules.parse(
    '[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},'
    ' {"child": "LIKE#USER#", "parent": "META", "attribute": "actions"},'
    ' {"child": "REPLY#{comment}#", "parent": "COMMENT#{comment}", "attribute": "replies"},'
    ' {"child": "REPLY#{comment}#", "parent": "META", "attribute": "actions"}]'
)
P1 = ("POST#p1", "META")
KEY = {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}}
LONG_AGO = NOW - SECONDS_A_MARK_MATTERS

GRANDPARENT, PARENT, SHARD, SISTER = "shardId-1", "shardId-2", "shardId-3", "shardId-4"
LINEAGE = Shards({GRANDPARENT: None, PARENT: GRANDPARENT, SHARD: PARENT, SISTER: PARENT}, frozenset({SHARD, SISTER}))


def mark(number, at=NOW):
    """Return a mark as the table holds it."""
    return {"M": {"seq": {"S": padded(str(number))}, "at": {"N": str(at)}}}


def post(tally=None, **attributes):
    """Return the item of post p1."""
    return KEY | ({} if tally is None else {"likeTally": {"N": str(tally)}}) | attributes


def marked(number, shard=SHARD, at=NOW):
    """Return a mark of a shard as attributes of an item."""
    return {f"mark#{shard.removeprefix('shardId-')}": mark(number, at)}


def come(number, user="u1", shard=SHARD, at=NOW - 60, prefix="LIKE#USER#"):
    """Return the change of a child that came."""
    return Streamed(shard, padded(str(number)), prefix + user, inserted=True, made_at=at)


def gone(number, user="u1", shard=SHARD, at=NOW - 60):
    """Return the change of a child that went."""
    return come(number, user, shard, at)._replace(inserted=False)


def reading(item, *users, rules=LIKES, parent=P1):
    """Return a reading of a parent that has the likes of some users."""
    children = {attribute: Keys() for attribute, _ in rules.counted_on(parent[1])}
    for keys in children.values():
        keys.add([f"LIKE#USER#{user}" for user in users])
    return Reading(parent, item, NOW, children, len(users))


def judged(item, *users, changes=(), shards=LINEAGE, overdue_before=0):
    """Return the verdict on post p1."""
    return judge(reading(item, *users), changes, shards, LIKES, overdue_before)


def drift(*arguments, **more):
    """Return by how much the tally of post p1 is too high."""
    (tally,) = judged(*arguments, **more).tallies
    return tally.drift


@pytest.mark.parametrize(("tally", "off"), [(2, 0), (5, 3), (0, -2), (-1, -3), (None, -2)])
def test_with_nothing_in_the_stream_the_tally_is_compared_with_the_children(tally, off):
    """A tally that is missing is 0, as on a table that never had any; a negative one is a number like any other."""
    verdict = judged(post(tally), "u1", "u2")
    assert (verdict.tallies[0].truth, verdict.tallies[0].drift) == (2, off)
    assert verdict.drifting is bool(off)
    assert (verdict.waiting, verdict.waiting_since, verdict.passed_over) == (0, None, {})


@pytest.mark.parametrize(
    ("there", "changes", "before"),
    [
        (True, [come(101)], False),
        (False, [gone(101)], True),
        (True, [gone(101), come(102)], True),
        (False, [come(101), gone(102)], False),
        (True, [come(101), gone(102), come(103)], False),
        (False, [gone(101), come(102), gone(103)], True),
        (False, [come(101)], False),
        (True, [gone(101)], True),
    ],
    ids=["came", "went", "went and came", "came and went", "thrice", "thrice again", "went unseen", "came unseen"],
)
def test_a_child_was_there_as_of_the_mark_if_its_first_change_after_it_is_a_removal(there, changes, before):
    """Where it was found or not says nothing of a child that changed after the mark."""
    users = ["u2", "u1"] if there else ["u2"]
    verdict = judged(post(1 + before, **marked(100)), *users, changes=changes)
    assert verdict.tallies[0].drift == 0
    assert verdict.waiting == len(changes)
    assert drift(post(4 + before, **marked(100)), *users, changes=changes) == 3


def test_changes_up_to_the_mark_are_in_the_tally():
    """At the mark is in; the numbers are compared as numbers, however wide they are written."""
    changes = [come(98, "u1"), come(99, "u2"), come(100, "u3"), gone(101, "u1")]
    for seq in ("99", "0099", padded("99")):
        item = post(2, **{"mark#3": {"M": {"seq": {"S": seq}, "at": {"N": str(NOW)}}}})
        verdict = judged(item, "u2", "u3", changes=changes)
        assert (verdict.waiting, verdict.drifting) == (2, False)


def test_a_shard_without_a_mark_has_nothing_in_the_tally():
    """The parent has not been counted from it: all its changes wait, and the oldest says since when."""
    verdict = judged(post(0), "u1", "u2", changes=[come(7, "u1", at=NOW - 90), come(8, "u2", SISTER, at=NOW - 300)])
    assert (verdict.waiting, verdict.waiting_since, verdict.drifting) == (2, NOW - 300, False)


@pytest.mark.parametrize("shard", [PARENT, GRANDPARENT])
def test_changes_in_a_shard_whose_descendant_has_a_mark_were_passed_over(shard):
    """A shard is read to its end before its children: what is missing from it will never be counted."""
    change = come(50, "u1", shard)
    verdict = judged(post(1, **marked(100)), "u1", "u2", changes=[change])
    assert (verdict.tallies[0].drift, verdict.waiting) == (-1, 0)
    assert verdict.passed_over == {f"mark#{shard.removeprefix('shardId-')}": Mark(change.number, change.made_at)}


@pytest.mark.parametrize("marks", [{}, marked(40, PARENT), marked(40, GRANDPARENT)])
def test_changes_in_a_closed_shard_wait_while_no_descendant_has_a_mark(marks):
    """The aggregator has not come so far yet: the shard's own mark, or an older one, does not say that it is done."""
    verdict = judged(post(0, **marks), "u1", changes=[come(50, "u1", PARENT)])
    assert (verdict.drifting, verdict.waiting, verdict.passed_over) == (False, 1, {})


def test_a_sister_shard_s_mark_says_nothing():
    """Both go on from one parent, each at its own pace."""
    verdict = judged(post(1, **marked(100)), "u1", "u2", changes=[come(50, "u1", SISTER)])
    assert (verdict.drifting, verdict.waiting, verdict.passed_over) == (False, 1, {})


def test_changes_too_old_to_be_delivered_were_passed_over():
    """The aggregator is given none of them: the tally lacks them for good, those below the last of them too."""
    old = [come(101, "u1", at=NOW - 900), come(102, "u2", at=NOW - 800)]
    verdict = judged(
        post(0, **marked(100)), "u1", "u2", "u3", changes=[*old, come(103, "u3")], overdue_before=NOW - 700
    )
    assert (verdict.tallies[0].drift, verdict.waiting) == (-2, 1)
    assert verdict.passed_over == {"mark#3": Mark(padded("102"), NOW - 800)}
    assert drift(post(0, **marked(100)), "u1", "u2", changes=old, overdue_before=NOW - 900) == 0


def test_what_lies_below_a_mark_that_a_repair_moves_is_passed_over_with_it():
    """Clocks differ: a record below an overdue one may be dated later, and the mark would hide it."""
    changes = [come(101, "u1", at=NOW - 600), come(102, "u2", at=NOW - 800)]
    verdict = judged(post(0), "u1", "u2", changes=changes, overdue_before=NOW - 700)
    assert (verdict.tallies[0].drift, verdict.waiting) == (-2, 0)
    assert verdict.passed_over == {"mark#3": Mark(padded("102"), NOW - 800)}


def test_the_ancestors_of_a_shard_end_where_the_stream_has_forgotten_them():
    """A shard still names its parent when that is gone."""
    shards = Shards({SHARD: PARENT}, frozenset({SHARD}))
    assert list(shards.ancestors(SHARD)) == [PARENT]
    assert list(LINEAGE.ancestors(SHARD)) == [PARENT, GRANDPARENT]


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"S": "many"}, "'many' .type S"), ({"N": "1.5"}, "'1.5' .type N"), ({"NULL": True}, "'True' .type NULL")],
)
def test_a_tally_that_is_no_integer_is_unjudged(value, shown):
    """There is nothing to subtract from; the message shows what is there."""
    with pytest.raises(Unjudged, match=f"likeTally is no integer but {shown}"):
        judged(post(likeTally=value), "u1")


@pytest.mark.parametrize(
    "value",
    [
        {"S": "5"},
        {"M": {}},
        {"M": {"seq": {"S": "5"}}},
        {"M": {"seq": {"N": "5"}, "at": {"N": "5"}}},
        {"M": {"seq": {"S": "five"}, "at": {"N": "5"}}},
    ],
)
def test_a_mark_that_is_not_the_aggregator_s_is_unjudged(value):
    """It does not say how far the tally reaches."""
    with pytest.raises(Unjudged, match="mark#3 is not a map"):
        judged(post(1, **{"mark#3": value}), "u1")


def test_the_mark_of_a_repair_is_no_mark_of_a_shard():
    """It holds a name and not a number."""
    item = post(1, **{REPAIR_MARK: {"M": {"seq": {"S": "r1"}, "at": {"N": str(NOW)}}}})
    assert not judged(item, "u1").drifting
    assert (last_repair(item), last_repair(post(1))) == ("r1", None)


def test_a_mark_without_a_shard_is_right_while_one_shard_is_open():
    """There is one lineage: its numbers go on rising, and what the mark holds is in."""
    line = Shards({PARENT: GRANDPARENT, SHARD: PARENT}, frozenset({SHARD}))
    changes = [come(99, "u1", PARENT), come(101, "u2")]
    verdict = judged(post(1, **{"mark#stream": mark(100)}), "u1", "u2", changes=changes, shards=line)
    assert (verdict.drifting, verdict.waiting) == (False, 1)
    late = {"shards": line, "overdue_before": NOW}
    verdict = judged(post(1, **{"mark#stream": mark(100)}), "u1", "u2", changes=changes, **late)
    assert verdict.passed_over == {"mark#stream": Mark(padded("101"), NOW - 60)}


@pytest.mark.parametrize("item", [post(1, **{"mark#stream": mark(100)}), post(1)], ids=["marked", "never counted"])
def test_a_mark_without_a_shard_is_unjudged_while_two_shards_are_open(item):
    """Nothing says which of them it is of; without a change in the stream it does not matter."""
    shards = Shards(LINEAGE.parents, LINEAGE.open, named=False)
    with pytest.raises(Unjudged, match="the stream has 2 open ones"):
        judged(item, "u1", changes=[come(101)], shards=shards)
    assert drift(item, "u1", shards=shards) == 0
    other = come(101, "u1", prefix="REPLY#c1#")
    assert drift(item, "u1", shards=shards, changes=[other]) == 0


def test_without_named_shards_the_mark_that_a_repair_moves_is_the_stream_s():
    """The aggregator looks at no other one, and would count what is repaired when it comes after all."""
    line = Shards({SHARD: None}, frozenset({SHARD}), named=False)
    verdict = judged(post(0), "u1", changes=[come(101)], shards=line, overdue_before=NOW)
    assert set(verdict.passed_over) == {"mark#stream"}


def test_a_parent_that_is_gone_is_unjudged():
    """There is no tally of which anything could be said."""
    with pytest.raises(Unjudged, match="does not exist any more"):
        judged(None, "u1")
    with pytest.raises(Unjudged, match="does not exist any more"):
        judge_at_rest(reading(None), [], LIKES)


def test_each_attribute_is_judged_by_the_children_that_count_on_it():
    """A like counts on two attributes of its post, a reply on one of its post and one of its comment."""
    changes = [come(101, "u9"), come(102, "r1", prefix="REPLY#c1#"), come(103, "r2", prefix="REPLY#c2#")]
    on_post = reading(post(2, actions={"N": "7"}, **marked(100)), "u1", "u9", rules=REPLIES)
    on_post.children["actions"].add(["REPLY#c1#r1", "REPLY#c2#r2", "REPLY#c2#r0"])
    verdict = judge(on_post, changes, LINEAGE, REPLIES, 0)
    assert {name: (tally, truth) for name, tally, truth in verdict.tallies} == {"likeTally": (2, 1), "actions": (7, 2)}
    assert verdict.waiting == 3

    on_comment = Reading(("POST#p1", "COMMENT#c1"), post(replies={"N": "1"}), NOW, {"replies": Keys()}, 1)
    on_comment.children["replies"].add(["REPLY#c1#r1"])
    verdict = judge(on_comment, changes, LINEAGE, REPLIES, 0)
    assert [(tally.attribute, tally.drift) for tally in verdict.tallies] == [("replies", 1)]
    assert verdict.waiting == 1


def test_keys_are_found_on_whatever_page_they_came():
    """Pages are kept as they came, an empty one too."""
    keys = Keys()
    for page in (["a", "b"], [], ["c"]):
        keys.add(page)
    assert keys.count == 3
    assert (keys.among({"b", "c", "x"}), keys.among({"x"}), keys.among(set())) == (2, 0, 0)


@pytest.mark.parametrize(("at", "still"), [(NOW - 3, True), (NOW - 2, False), (NOW + 1, False)])
def test_a_tally_by_transactions_is_judged_only_if_no_child_changed_while_it_was_read(at, still):
    """There is no mark that would tell the changes in it from those that are not; old ones are all in."""
    of_post = reading(post(3), "u1")
    if still:
        assert [tally.drift for tally in judge_at_rest(of_post, [come(1, at=at)], LIKES).tallies] == [2]
    else:
        with pytest.raises(Disturbed):
            judge_at_rest(of_post, [come(1, at=at)], LIKES)
    other = judge_at_rest(reading(post(1), "u1"), [come(1, at=NOW, prefix="REPLY#c1#")], LIKES)
    assert (other.drifting, other.waiting, other.waiting_since, other.passed_over) == (False, 0, None, {})


def test_a_tally_by_transactions_may_have_any_marks():
    """They are left from the time when it was counted from the stream."""
    assert not judge_at_rest(reading(post(1, **{"mark#3": {"S": "5"}}), "u1"), [], LIKES).drifting


# Repair.


@pytest.fixture
def table():
    """Give an empty table in memory."""
    return FakeDynamoDb()


def mended(table, item, *users, meanwhile=None, name="r1", **more):
    """Judge an item that is in the table, let something happen, and send the repair."""
    table.items[P1] = dict(item)
    request = repair(judged(item, *users, **more), name, NOW)
    if meanwhile:
        meanwhile(table)
    return DynamoDbTable(table, "T").update(request)


def counts(*numbers, shard=SHARD):
    """Return what lets the aggregator count likes."""
    changes = [(padded(str(number)), "likeTally", 1, 0) for number in numbers]
    return lambda table: count(DynamoDbTable(table, "T"), Share(P1, changes, NOW), shard, NOW)


def becomes(item):
    """Return what lets the item be another one."""
    return lambda table: table.items.update({P1: item})


def test_the_repair_is_one_update_that_adds_minus_the_drift():
    """All of its conditions are in it; names and values are those that it uses."""
    passed = come(50, "u1", PARENT, at=NOW - 70)
    verdict = judged(post(4, createdAt={"N": "7"}, **marked(100)), "u1", "u2", changes=[passed])
    assert repair(verdict, "r1", NOW) == {
        "Key": KEY,
        "UpdateExpression": "SET #repair = :repair, #p0 = :p0 ADD #a0 :d0",
        "ConditionExpression": "attribute_exists(PK) AND attribute_not_exists(#repair) AND attribute_not_exists(#p0)"
        " AND #created = :created AND #latest.#seq >= :latest",
        "ExpressionAttributeNames": {
            "#repair": REPAIR_MARK,
            "#seq": "seq",
            "#p0": "mark#2",
            "#a0": "likeTally",
            "#created": "createdAt",
            "#latest": "mark#3",
        },
        "ExpressionAttributeValues": {
            ":repair": {"M": {"seq": {"S": "r1"}, "at": {"N": str(NOW)}}},
            ":p0": mark(50, NOW - 70),
            ":d0": {"N": "-2"},
            ":created": {"N": "7"},
            ":latest": {"S": padded("100")},
        },
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize("marks", [marked(100), marked(100, at=LONG_AGO), {}], ids=["busy", "idle", "never counted"])
@pytest.mark.parametrize("tally", [7, 0, -3, None])
def test_a_repair_leaves_the_tally_that_the_children_say(table, tally, marks):
    """Too high, too low, negative or missing, with any marks."""
    answer = mended(table, post(tally, **marks), "u1", "u2")
    assert answer.written
    assert (table.tally("p1"), last_repair(table.items[P1])) == (2, "r1")
    assert not judged(table.items[P1], "u1", "u2").drifting


@pytest.mark.parametrize(("age", "by_mark"), [(86_399, True), (86_400, False)])
def test_a_repair_rests_on_a_mark_only_while_that_cannot_be_removed_as_stale(age, by_mark):
    """An hour before it may be, the tally itself tells whether the parent is as it was judged."""
    verdict = judged(post(5, **marked(100, at=NOW - age)), "u1")
    condition = repair(verdict, "r1", NOW)["ConditionExpression"]
    assert ("#latest.#seq >= :latest" in condition, "#a0 = :t0" in condition) == (by_mark, not by_mark)


def test_what_is_counted_between_verdict_and_repair_stays(table):
    """A delta commutes with what the aggregator adds."""
    assert mended(table, post(7, **marked(100)), "u1", meanwhile=counts(101, 102)).written
    assert table.tally("p1") == 1 + 2


def test_a_passed_over_change_that_comes_after_the_repair_is_not_counted_again(table):
    """The repair has moved the mark over it."""
    item = post(1, **marked(100))
    assert mended(table, item, "u1", "u2", changes=[come(50, "u1", PARENT)]).written
    counts(50, shard=PARENT)(table)
    assert table.tally("p1") == 2


@pytest.mark.parametrize(
    ("item", "meanwhile"),
    [
        (post(5), becomes(post(5, **{REPAIR_MARK: mark(1)}))),
        (post(5, **{REPAIR_MARK: mark(1)}), becomes(post(5, **{REPAIR_MARK: mark(2)}))),
        (post(5, createdAt={"N": "1"}), becomes(post(5, createdAt={"N": "2"}))),
        (post(5, createdAt={"N": "1"}, **marked(100)), becomes(post(5, createdAt={"N": "2"}, **marked(100)))),
        (post(5, **marked(100)), becomes(post(5))),
        (post(5, **marked(100)), becomes(post(5, **marked(99)))),
        (post(5), becomes(post(6))),
        (post(5), becomes(post())),
        (post(), becomes(post(5))),
        (post(5, **marked(100, at=LONG_AGO)), counts(101)),
    ],
    ids=[
        "repaired",
        "repaired again",
        "made anew",
        "made anew and counted",
        "made anew without a date",
        "a backup",
        "another tally",
        "no tally",
        "a tally",
        "counted after a long rest",
    ],
)
def test_a_repair_is_refused_where_its_verdict_does_not_hold_any_more(table, item, meanwhile):
    """The item comes back as it is, and is judged anew."""
    answer = mended(table, item, "u1", meanwhile=meanwhile)
    assert not answer.written
    assert answer.item == table.items[P1]
    assert last_repair(table.items[P1]) != "r1"


@pytest.mark.parametrize(
    ("marks", "meanwhile"),
    [({}, counts(50, shard=PARENT)), (marked(40, PARENT), counts(50, shard=PARENT))],
    ids=["first mark", "mark moved"],
)
def test_a_repair_is_refused_where_what_seemed_passed_over_has_been_counted(table, marks, meanwhile):
    """An invocation under way, or a mapping made anew, brought it after all: the tally has it now."""
    change = come(50, "u1", PARENT)
    answer = mended(table, post(1, **marked(100), **marks), "u1", "u2", changes=[change], meanwhile=meanwhile)
    assert not answer.written
    assert table.tally("p1") == 2


def test_a_repair_brings_no_deleted_parent_back(table):
    """`ADD` by itself would leave a ghost."""
    answer = mended(table, post(5), "u1", meanwhile=lambda table: table.items.clear())
    assert answer == Answer(written=False, item=None)
    assert table.items == {}


def test_the_same_repair_sent_twice_is_applied_once(table):
    """The SDK resends it when the answer is lost; the second one finds its own name."""
    item = post(5, **marked(100))
    table.items[P1] = dict(item)
    request, port = repair(judged(item, "u1"), "r1", NOW), DynamoDbTable(table, "T")
    first, second = port.update(request), port.update(request)
    assert (first.written, second.written, last_repair(second.item)) == (True, False, "r1")
    assert table.tally("p1") == 1


def test_only_what_drifts_is_written(table):
    """A tally that is right may change while the repair is under way."""
    item = post(1, actions={"N": "9"}, **marked(100))
    table.items[P1] = dict(item)
    request = repair(judge(reading(item, "u1", rules=REPLIES), [], LINEAGE, REPLIES, 0), "r1", NOW)
    assert request["UpdateExpression"] == "SET #repair = :repair ADD #a0 :d0"
    assert DynamoDbTable(table, "T").update(request).written
    assert (table.tally("p1"), table.tally("p1", "actions")) == (1, 1)
