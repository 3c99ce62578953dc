"""Rules: read from JSON, refused with their number and text, and asked what counts where."""

import json

import pytest

from tallystream.rules import DEFAULT_COUNTERS, Rule, RuleError, Rules

LIKES = {"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"}
REPLIES = {"child": "REPLY#{commentId}#", "parent": "COMMENT#{commentId}", "attribute": "replyTally"}


def rules(*entries):
    """Return the rules that these objects describe."""
    return Rules.parse(json.dumps(entries))


def test_the_default_counts_likes_on_their_post():
    """Without configuration a like counts on `META`, in `likeTally`, and nothing else counts anywhere."""
    default = Rules.parse(DEFAULT_COUNTERS)
    assert default.all == (Rule(**LIKES),)
    assert default.parents_of("LIKE#USER#u1") == (("META", "likeTally"),)
    for other in ("META", "LIKE", "LIKE#USER", "like#user#u1", "XLIKE#USER#u1", "COMMENT#c1", ""):
        assert default.parents_of(other) == ()


@pytest.mark.parametrize(
    ("child", "parent", "parent_sort_key", "prefix"),
    [
        ("LIKE#USER#", "META", "META", "LIKE#USER#"),
        ("LIKE#USER#", "META", "META#2", None),
        ("REPLY#{c}#", "COMMENT#{c}", "COMMENT#c1", "REPLY#c1#"),
        ("REPLY#{c}#", "COMMENT#{c}", "COMMENT#c1#x", None),
        ("REPLY#{c}#", "COMMENT#{c}", "COMMENT#", None),
        ("REPLY#{c}#", "META", "META", "REPLY#"),
        ("R#{a}#{b}#", "C#{b}#{a}", "C#2#1", "R#1#2#"),
        ("R#{a}#{b}#", "C#{b}", "C#2", "R#"),
        ("R#{a}#{b}#", "C#{a}", "C#1", "R#1#"),
        ("R#{a}#{b}#", "C#{a}#{a}", "C#1#1", "R#1#"),
        ("R#{a}#{b}#", "C#{a}#{a}", "C#1#2", None),
        ("R#{a}#{b}#", "C#{a}{b}", "C#12", "R#"),
        ("REPLY#{c}#", "COMMENT#{c}", "COMMENT#.*", "REPLY#.*#"),
    ],
)
def test_a_parent_s_key_leads_back_to_its_children(child, parent, parent_sort_key, prefix):
    """The prefix holds all children of the parent, and as few others as the parent's key tells apart."""
    entry = {"child": child, "parent": parent, "attribute": "n"}
    assert rules(entry).counted_on(parent_sort_key) == ((("n", prefix),) if prefix else ())


@pytest.mark.parametrize(
    ("child", "parent", "sort_key", "found"),
    [
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#c1#r1", "COMMENT#c1"),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#c1#", "COMMENT#c1"),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#c1#r1#x#y", "COMMENT#c1"),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#c1", None),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY##r1", None),
        ("REPLY#{c}#", "COMMENT#{c}", "XREPLY#c1#r1", None),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#한국|:.*#r1", "COMMENT#한국|:.*"),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#\\g<1>#r1", "COMMENT#\\g<1>"),
        ("REPLY#{c}#", "COMMENT#{c}", "REPLY#{c}#r1", "COMMENT#{c}"),
        ("R#{a}#{b}#", "C#{b}#{a}", "R#1#2#3", "C#2#1"),
        ("R#{a}#{b}#", "C#{a}", "R#1#2#3", "C#1"),
        ("R.{a}#", "C#{a}", "R.1#x", "C#1"),
        ("R.{a}#", "C#{a}", "Rx1#x", None),
        ("MEMBER#{id}", "META", "MEMBER#m1", "META"),
    ],
)
def test_a_segment_of_the_child_s_key_leads_to_its_parent(child, parent, sort_key, found):
    """A segment is one or more characters without `#`, and is text wherever it is put in."""
    entry = {"child": child, "parent": parent, "attribute": "n"}
    assert rules(entry).parents_of(sort_key) == (((found, "n"),) if found else ())


def test_several_rules_may_share_a_parent_and_a_child():
    """Two kinds of children count on one parent, and one child counts on two parents or in two attributes."""
    found = rules(
        LIKES,
        {"child": "SHARE#", "parent": "META", "attribute": "shareTally"},
        {"child": "LIKE#", "parent": "META", "attribute": "actions"},
        {"child": "LIKE#USER#{userId}", "parent": "FAN#{userId}", "attribute": "given"},
    )
    assert found.parents_of("SHARE#s1") == (("META", "shareTally"),)
    both = {("META", "likeTally"), ("META", "actions"), ("FAN#u1", "given")}
    assert set(found.parents_of("LIKE#USER#u1")) == both
    assert found.parents_of("LIKE#PAGE#g1") == (("META", "actions"),)


def test_the_short_cut_for_one_plain_rule_is_there_only_for_one_plain_rule():
    """The hot path may ask `only` instead of `parents_of` just where both say the same."""
    assert rules(LIKES).only == ("LIKE#USER#", (("META", "likeTally"),))
    assert rules(REPLIES).only is None
    assert rules(LIKES, REPLIES).only is None


def test_the_prefixes_are_what_a_query_can_use():
    """Audits query children and find parents by the fixed text before the first segment."""
    assert [(rule.prefix, rule.parent_prefix) for rule in rules(LIKES, REPLIES).all] == [
        ("LIKE#USER#", "META"),
        ("REPLY#", "COMMENT#"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("LIKE#USER#", "not JSON"),
        ("[{]", "not JSON"),
        ("{}", "must be a JSON list"),
        ("null", "must be a JSON list"),
        ('"LIKE#"', "must be a JSON list"),
        ("[]", "at least one rule"),
    ],
)
def test_what_is_no_list_of_rules_is_refused_with_a_way_out(text, said):
    """Text that is no JSON list is refused, and the message shows a valid one."""
    with pytest.raises(RuleError, match=said) as refused:
        Rules.parse(text)
    assert said == "at least one rule" or DEFAULT_COUNTERS in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("LIKE#", "must be an object"),
        (["LIKE#", "META", "n"], "must be an object"),
        (None, "must be an object"),
        ({"child": None}, "needs child as a string"),
        ({"child": ""}, "needs child as a string"),
        ({"child": 5}, "needs child as a string"),
        ({"parent": ["META"]}, "needs parent as a string"),
        ({"parent": ""}, "needs parent as a string"),
        ({"attribute": {}}, "needs attribute as a string"),
        ({"attribute": ""}, "needs attribute as a string"),
        ({"atribute": "n"}, "has fields that no rule has: atribute"),
        ({"child": "R#{a}#{a}#"}, "names a segment twice"),
        ({"parent": "C#{b}"}, "does not have: b"),
        ({"child": "R#{a}#", "parent": "C#{a}#{b}#{c}"}, "does not have: b, c"),
        ({"child": "R#{a#"}, "has a brace"),
        ({"child": "R#a}#"}, "has a brace"),
        ({"child": "R#{}#"}, "has a brace"),
        ({"child": "R#{1a}#"}, "has a brace"),
        ({"parent": "{"}, "has a brace"),
        ({"child": "{a}#"}, "fixed text before the first segment"),
        ({"attribute": "PK"}, "must not count on a key or on a mark"),
        ({"attribute": "SK"}, "must not count on a key or on a mark"),
        ({"attribute": "mark#stream"}, "must not count on a key or on a mark"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_named(changes, said):
    """The message holds the rule's number and text, so that it is found in a long list."""
    entry = {**LIKES, **changes} if isinstance(changes, dict) else changes
    with pytest.raises(RuleError, match=r"^rule 2 ") as refused:
        rules(REPLIES, entry)
    assert said in str(refused.value)
    assert json.dumps(entry) in str(refused.value)


@pytest.mark.parametrize("field", LIKES)
def test_a_rule_needs_each_field(field):
    """A missing field is named."""
    entry = {name: value for name, value in LIKES.items() if name != field}
    with pytest.raises(RuleError, match=rf"^rule 1 .* needs {field} as a string"):
        rules(entry)


@pytest.mark.parametrize(
    ("child", "parent"),
    [("META", "META"), ("A#", "A#total"), ("A#{x}#", "A#{x}#total"), ("A#{x}", "A#{x}")],
)
def test_a_parent_that_its_own_rule_would_count_as_a_child_is_refused(child, parent):
    """Such a parent's own creation would be counted on itself."""
    with pytest.raises(RuleError, match=r"rule 1|itself"):
        rules({"child": child, "parent": parent, "attribute": "n"})


@pytest.mark.parametrize(
    "other",
    [LIKES, {**LIKES, "child": "LIKE#"}, {**LIKES, "child": "LIKE#USER#{userId}"}],
    ids=["twice", "wider", "segmented"],
)
def test_two_rules_that_count_one_child_twice_in_one_attribute_are_refused(other):
    """One record would stand twice in one parent's changes: neither +1 nor +2 could be meant for sure."""
    with pytest.raises(RuleError, match=r"rule 2|twice"):
        rules(LIKES, other)
