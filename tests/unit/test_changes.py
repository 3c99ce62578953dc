"""Grouping: which records count, where, in what order, and what becomes of all the others."""

import copy
import json
import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import expired, foreign, like, modify, record, unlike
from tallystream.changes import SEQUENCE_DIGITS, group, net, padded
from tallystream.rules import DEFAULT_COUNTERS, Rules

RULES = Rules.parse(DEFAULT_COUNTERS)
SEGMENTED = Rules.parse('[{"child": "LIKE#{kind}#", "parent": "BY#{kind}", "attribute": "n"}]')
P1 = ("POST#p1", "META")
IMAGE = {"PK": {"S": "POST#p1"}, "SK": {"S": "LIKE#USER#u1"}, "likedAt": {"N": "1796040000"}}


def tallies(*records, rules=RULES):
    """Return what the records add up to, as post -> delta; the rule's attribute is the default one."""
    parents = group(records, rules).parents
    return {parent[0].removeprefix("POST#"): net(changes).get("likeTally", 0) for parent, changes in parents.items()}


def imaged(record, **data):
    """Return a record with more in its `dynamodb` part."""
    return {**record, "dynamodb": {**record["dynamodb"], **data}}


VIEWS = {
    "KEYS_ONLY": ({}, {}),
    "NEW_IMAGE": ({"NewImage": IMAGE}, {}),
    "OLD_IMAGE": ({}, {"OldImage": IMAGE}),
    "NEW_AND_OLD_IMAGES": ({"NewImage": IMAGE}, {"OldImage": IMAGE}),
    "an older moto": ({"NewImage": {}, "OldImage": {}}, {"NewImage": {}, "OldImage": None}),
}


@pytest.mark.parametrize("view", VIEWS)
def test_b10_every_view_type_counts_alike(view):
    """Post and kind are read from the keys, so that images may be there, missing, empty or null."""
    inserted, removed = VIEWS[view]
    insert = imaged(like(101), **inserted, StreamViewType=view)
    remove = imaged(unlike(102, user="u2"), **removed, StreamViewType=view)
    assert tallies(insert) == {"p1": 1}
    assert tallies(remove) == {"p1": -1}


def test_a_change_says_what_a_mark_and_an_answer_need():
    """A change is the padded sequence number, the attribute, the delta and the record's position."""
    grouped = group([modify(5), like(101, user="u1"), unlike(103, user="u2"), like(102, post="p2")], RULES)
    assert grouped.parents == {
        P1: [(f"{101:040d}", "likeTally", 1, 1), (f"{103:040d}", "likeTally", -1, 2)],
        ("POST#p2", "META"): [(f"{102:040d}", "likeTally", 1, 3)],
    }
    assert grouped[1:] == (1, [], set(), [])


def test_b08_records_are_taken_in_their_order_not_by_kind():
    """A like followed by its unlike cancels out; ending in a like, it counts."""
    history = [like(301), unlike(302), like(303), unlike(304)]
    assert tallies(*history) == {"p1": 0}
    assert tallies(*history, like(305)) == {"p1": 1}
    assert net(group(history, RULES).parents[P1]) == {"likeTally": 0}


@pytest.mark.parametrize(
    "records",
    [
        [modify(401)],
        [record("INSERT", 401, ("POST#p1", "META"))],
        [record("MODIFY", 401, ("POST#p1", "META"))],
        [record("REMOVE", 401, ("POST#p1", "META"))],
        [record("INSERT", 401, ("POST#p1", "COMMENT#c1"))],
        [record("INSERT", 401, ("POST#p1", "XLIKE#USER#u1"))],
        [record("INSERT", 401, ("POST#p1", ""))],
    ],
)
def test_b11_a_rewrite_and_items_that_no_rule_matches_count_nothing(records):
    """A MODIFY is no change of the count, and items that are no children are left alone without being called broken."""
    grouped = group(records, RULES)
    assert grouped == ({}, 1, [], set(), [])


def test_b11_only_the_removal_and_the_insertion_of_one_update_count():
    """MODIFY, REMOVE and INSERT for one like leave it counted once."""
    assert tallies(modify(401), unlike(402), like(403)) == {"p1": 0}
    assert tallies(like(400), modify(401), unlike(402), like(403)) == {"p1": 1}


def test_b12_a_like_removed_by_ttl_counts_as_removed_with_and_without_its_identity():
    """The tally follows the children, whoever removed them; the post's own expiry counts nothing."""
    assert tallies(expired(501)) == tallies(unlike(501)) == {"p1": -1}
    own = {**record("REMOVE", 502, ("POST#p1", "META")), "userIdentity": expired(1)["userIdentity"]}
    assert tallies(own) == {}


BAD = {
    "no dynamodb": {"eventName": "INSERT"},
    "dynamodb null": {**like(702), "dynamodb": None},
    "no keys": imaged(like(702), Keys={}),
    "keys null": imaged(like(702), Keys=None),
    "BOGUS": {**like(702), "eventName": "BOGUS"},
    "insert": {**like(702), "eventName": "insert"},
    "no name": {name: value for name, value in like(702).items() if name != "eventName"},
    "unhashable name": {**like(702), "eventName": ["INSERT"]},
    "numeric PK": imaged(like(702), Keys={"PK": {"N": "5"}, "SK": {"S": "LIKE#USER#u1"}}),
    "numeric SK": imaged(like(702), Keys={"PK": {"S": "POST#p1"}, "SK": {"N": "5"}}),
    "PK not text": imaged(like(702), Keys={"PK": {"S": 5}, "SK": {"S": "LIKE#USER#u1"}}),
    "SK not text": imaged(like(702), Keys={"PK": {"S": "POST#p1"}, "SK": {"S": ["LIKE#USER#u1"]}}),
    "stock sample": foreign(702),
    "null": None,
    "text": "INSERT",
    "list": [like(702)],
    "number": 5,
    "empty": {},
}


@pytest.mark.parametrize("rules", [RULES, SEGMENTED], ids=["plain", "segmented"])
@pytest.mark.parametrize("bad", BAD)
def test_b14_a_malformed_record_is_listed_and_its_neighbours_count(bad, rules):
    """Whatever is no record stops nobody, and its place is known."""
    grouped = group([like(701, user="u1"), BAD[bad], like(703, user="u2")], rules)
    ((_, changes),) = grouped.parents.items()
    assert [change[3] for change in changes] == [0, 2]
    assert (grouped.ignored, grouped.malformed) == (1, [1])


def test_b14_a_sort_key_that_is_no_child_s_is_ignored_but_not_malformed():
    """`LIKE` without its `#` is an item of another kind."""
    assert group([record("INSERT", 702, ("POST#p1", "LIKE"))], RULES) == ({}, 1, [], set(), [])


def test_b29_foreign_tables_and_numeric_keys_are_skipped():
    """The stock sample's three events and a numeric key count nothing and are called malformed."""
    stock = [{**foreign(n), "eventName": name} for n, name in enumerate(("INSERT", "MODIFY", "REMOVE"))]
    numeric = imaged(like(4), Keys={"PK": {"N": "1.0"}, "SK": {"S": "LIKE#USER#u1"}})
    assert group([*stock, numeric], RULES) == ({}, 4, [0, 1, 2, 3], set(), [])


def test_b27_a_number_sign_in_an_id_never_leads_to_another_post():
    """Keys are compared as pairs: `a#b` is not `a`, and a user called LIKE#USER#x is one user of one post."""
    records = [
        like(1, "a", "x"),
        like(2, "a", "#x"),
        like(3, "a", "LIKE#USER#x"),
        like(4, "a#b", "x"),
        unlike(5, "a", "#x"),
    ]
    assert tallies(*records) == {"a": 2, "a#b": 1}
    by_kind = Rules.parse('[{"child": "C#", "parent": "B", "attribute": "likeTally"}]')
    joined = [record("INSERT", 1, ("A#", "C#1")), record("INSERT", 2, ("A", "C##B"))]
    assert set(group(joined, by_kind).parents) == {("A#", "B"), ("A", "B")}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0", "0" * 40),
        ("7", "7".zfill(40)),
        ("111", "111".zfill(40)),
        ("000000000000000000101", "101".zfill(40)),
        ("49590338271490256608559692538361571095921575989136588898", None),
        ("9" * 40, "9" * 40),
        ("9" * 41, None),
        ("1" + "0" * 40, None),
        ("0" * 60 + "12", "12".zfill(40)),
        ("0" * 41, "0" * 40),
        ("", None),
        (" 5", None),
        ("5\n", None),
        ("-5", None),
        ("+5", None),
        ("5.0", None),
        ("1e3", None),
        ("0x10", None),
        ("1_000", None),
        ("\u0665", None),
        ("\u00b2", None),
        ("\uff15", None),
        (5, None),
        (5.0, None),
        (None, None),
        (True, None),
        (b"5", None),
        (["5"], None),
        ({}, None),
    ],
)
def test_a_sequence_number_is_at_most_40_decimal_digits(number, expected):
    """Any width and any leading zeros are one number; digits of other scripts and other types are none.

    The hot path reads the usual numbers without the call and must read them alike.
    """
    assert padded(number) == expected
    given = imaged(like(1), SequenceNumber=number)
    grouped = group([given], RULES)
    if expected is None:
        assert (grouped.parents, grouped.unnumbered) == ({}, [0])
    else:
        assert (grouped.parents[P1][0][0], grouped.unnumbered) == (expected, [])


@given(st.integers(0, 10**40 - 1), st.integers(0, 10**40 - 1), st.integers(0, 50), st.integers(0, 50))
def test_padded_numbers_compare_as_numbers_do(one, other, zeros, more):
    """As text they compare as they do as numbers, whatever zeros they came with."""
    a, b = padded("0" * zeros + str(one)), padded("0" * more + str(other))
    assert len(a) == len(b) == SEQUENCE_DIGITS
    assert (a < b, a == b) == (one < other, one == other)


def test_b15_a_record_that_counts_but_has_no_number_is_listed_apart():
    """It is neither malformed nor ignored; one that counts nothing needs no number."""
    records = [like(None), like(2), modify(None), unlike("", user="u2"), record("INSERT", None, ("POST#p1", "META"))]
    grouped = group(records, RULES)
    assert grouped.unnumbered == [0, 3]
    assert (grouped.ignored, grouped.malformed) == (2, [])
    assert [change[3] for change in grouped.parents[P1]] == [1]


def test_a_record_that_stands_in_a_batch_twice_counts_once():
    """Repetitions are found by their number, next to each other or not, with other zeros or not."""
    records = [like(1), like(2, user="u2"), like(1), like("2", user="u2"), like(2, user="u2"), like(3, "p2")]
    grouped = group(records, RULES)
    assert [change[0] for change in grouped.parents[P1]] == [padded("1"), padded("2")]
    assert grouped.repeated == {2, 3, 4}
    assert tallies(*records) == {"p1": 2, "p2": 1}


def test_records_out_of_order_are_put_in_order():
    """A mark says "everything up to here", so that a parent's changes ascend whatever order they came in."""
    grouped = group([like(3, user="u3"), like(1), unlike(2)], RULES)
    assert [(int(change[0]), change[2], change[3]) for change in grouped.parents[P1]] == [
        (1, 1, 1),
        (2, -1, 2),
        (3, 1, 0),
    ]
    assert grouped.repeated == set()


def test_one_record_on_two_parents_and_in_two_attributes_is_no_repetition():
    """The same number stands for one record once for each rule that it meets."""
    rules = Rules.parse("""[{"child": "LIKE#", "parent": "META", "attribute": "actions"},
        {"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},
        {"child": "LIKE#USER#{user}", "parent": "FAN#{user}", "attribute": "given"}]""")
    grouped = group([like(1), like(2, user="u2"), like(1)], rules)
    assert grouped.repeated == {2}
    assert {parent[1]: net(changes) for parent, changes in grouped.parents.items()} == {
        "META": {"actions": 2, "likeTally": 2},
        "FAN#u1": {"given": 1},
        "FAN#u2": {"given": 1},
    }


def test_net_keeps_whole_numbers_and_says_zero_where_changes_cancel_out():
    """Deltas are ints, attribute by attribute."""
    changes = [("1", "a", 1, 0), ("2", "b", 1, 1), ("3", "b", -1, 2), ("4", "a", 1, 3), ("5", "c", -1, 4)]
    assert net(changes) == {"a": 2, "b": 0, "c": -1}
    assert all(type(delta) is int for delta in net(changes).values())
    assert net([]) == {}


def test_grouping_ten_thousand_records_keeps_their_sums():
    """A full batch, shuffled and with repetitions, adds up to what counting it one by one gives."""
    chance = random.Random(1)
    records = [
        chance.choice((like, unlike, modify))(number, f"p{chance.randrange(50)}", f"u{number}")
        for number in range(9000)
    ]
    expected = Counter()
    for each in records:
        expected[each["dynamodb"]["Keys"]["PK"]["S"]] += {"INSERT": 1, "REMOVE": -1, "MODIFY": 0}[each["eventName"]]
    delivered = records + chance.choices(records, k=1000)
    chance.shuffle(delivered)
    grouped = group(delivered, RULES)
    assert {parent[0]: net(changes).get("likeTally", 0) for parent, changes in grouped.parents.items()} == expected
    for changes in grouped.parents.values():
        numbers = [change[0] for change in changes]
        assert numbers == sorted(set(numbers))
    assert sum(map(len, grouped.parents.values())) + grouped.ignored + len(grouped.repeated) == 10_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["INSERT", "5"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["S", "N", "PK", "SK", "Keys", "dynamodb", "x"]), inner, max_size=2)
    ),
    max_leaves=5,
)
PLACES = [
    (),
    ("eventName",),
    ("dynamodb",),
    ("dynamodb", "Keys"),
    ("dynamodb", "SequenceNumber"),
    ("dynamodb", "Keys", "PK"),
    ("dynamodb", "Keys", "SK"),
    ("dynamodb", "Keys", "PK", "S"),
    ("dynamodb", "Keys", "SK", "S"),
]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(PLACES), JSON, st.sampled_from([RULES, SEGMENTED]))
@example(("eventName",), {}, RULES)
@example(("dynamodb", "Keys", "PK", "S"), {}, RULES)
def test_b14_nothing_in_place_of_a_part_of_a_record_raises(place, junk, rules):
    """Any JSON in place of any part of a record leaves its neighbours counted, and the record is in one class."""
    bad = copy.deepcopy(like(2, "other", "u2"))
    if place:
        part = bad
        for name in place[:-1]:
            part = part[name]
        part[place[-1]] = junk
    else:
        bad = junk
    records = json.loads(json.dumps([like(1), bad, like(3, user="u3")]))
    grouped = group(records, rules)
    settled = [change[3] for changes in grouped.parents.values() for change in changes]
    assert {0, 2} <= set(settled)
    assert len(settled) + grouped.ignored + len(grouped.unnumbered) + len(grouped.repeated) == 3
