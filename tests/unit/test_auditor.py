"""The procedure of an audit: what is read in which order, what is asked again, what is repaired, what is reported."""

import pytest

from builders import NOW
from fakes import LOST, FaultyDynamoDb, client_error
from tallystream.audit import REPAIR_MARK, Disturbed, Shards, Streamed, Tally, Unjudged, last_repair
from tallystream.auditor import CLOCKS_DIFFER_S, READINGS, REPAIRS, Auditor, Group, Report, groups, overdue_after
from tallystream.changes import padded
from tallystream.counters import Share, count
from tallystream.dynamodb import DynamoDbTable
from tallystream.rules import DEFAULT_COUNTERS, Rules

LIKES = Rules.parse(DEFAULT_COUNTERS)
REPLIES = Rules.parse(
    '[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},'
    ' {"child": "LIKE#", "parent": "META", "attribute": "reactions"},'
    ' {"child": "REPLY#{comment}#", "parent": "COMMENT#{comment}", "attribute": "replies"},'
    ' {"child": "REPLY#{comment}#", "parent": "META", "attribute": "comments"}]'
)
P1, P2 = ("POST#p1", "META"), ("POST#p2", "META")
SHARD = "shardId-3"
AGE = 6 * 3600
LATE = NOW - AGE - 901
"""When a change was made that no invocation can be given any more."""


def mark(number, at=NOW):
    """Return a mark as the table holds it."""
    return {"M": {"seq": {"S": padded(str(number))}, "at": {"N": str(at)}}}


class Parts:
    """What an auditor works on: a table, a stream, a clock, and a log of what was done."""

    def __init__(self):
        self.table = FaultyDynamoDb()
        self.log = []
        self.shards = Shards({SHARD: None}, frozenset({SHARD}))
        self.streamed = {}
        self.time = float(NOW)
        self.page = 2
        self.meanwhile = {}
        """(what was done, how often) -> what happens right after it."""

    def did(self, what, *more):
        """Note what was done, and let happen what was to happen then."""
        self.log.append((what, *more))
        self.meanwhile.pop((what, sum(entry[0] == what for entry in self.log)), lambda: None)()

    def done(self, *what):
        """Return what was done of some things, in order."""
        return [entry for entry in self.log if entry[0] in what]

    def now(self):
        """Return the time."""
        return self.time

    # Items.

    def item(self, key):
        """Read one item."""
        item = self.table.items.get(key)
        self.did("item", key)
        return None if item is None else dict(item)

    def children(self, partition_key, prefix):
        """Read children in pages."""
        keys = sorted(key[1] for key in self.table.items if key[0] == partition_key and key[1].startswith(prefix))
        for start in range(0, max(len(keys), 1), self.page):
            self.did("children", partition_key, prefix)
            yield keys[start : start + self.page]

    # Stream.

    def catch_up(self, reached=None):
        """Read the stream."""
        self.reached = reached
        self.did("stream")

    def changes(self, partition_key):
        """Return what was read."""
        return list(self.streamed.get(partition_key, []))

    # What tests do.

    def like(self, user, post="p1", prefix="LIKE#USER#", number=None, at=NOW - 60):
        """Store a like; with a number, the stream has it."""
        key = (f"POST#{post}", prefix + user)
        self.table.items[key] = {"PK": {"S": key[0]}, "SK": {"S": key[1]}}
        if number is not None:
            change = Streamed(SHARD, padded(str(number)), key[1], inserted=True, made_at=at)
            self.streamed.setdefault(key[0], []).append(change)

    def post(self, tally, *users, post="p1", **attributes):
        """Store a post with a tally and likes."""
        key = (f"POST#{post}", "META")
        self.table.items[key] = {"PK": {"S": key[0]}, "SK": {"S": "META"}, "likeTally": {"N": str(tally)}, **attributes}
        for user in users:
            self.like(user, post)

    def auditor(self, **changes):
        """Return an auditor on all this."""
        names = iter(f"r{number}" for number in range(1, 100))
        parts = {
            "items": self,
            "stream": self,
            "table": DynamoDbTable(self.table, "T"),
            "rules": LIKES,
            "path": "stream",
            "overdue_s": overdue_after(AGE),
            "concurrently": map,
            "now": self.now,
            "new_name": lambda: next(names),
        }
        return Auditor(**{**parts, **changes})

    def audit(self, *, mend=False, **changes):
        """Audit the whole table as one page of a scan shows it; return the report."""
        auditor, report = self.auditor(**changes), Report()
        items = [self.table.items[key] for key in sorted(self.table.items)]
        auditor.audit(list(groups([(self.time, items)], auditor.rules)), report, mend=mend)
        return report

    def judge(self, *parents, mend=False, **changes):
        """Judge parents that were seen; return the report."""
        report = Report()
        self.auditor(**changes).judge(dict.fromkeys(parents or [P1], True), report, mend=mend)
        return report


@pytest.fixture
def parts():
    """Give what an auditor works on."""
    return Parts()


# What the scan proves.


def test_a_parent_that_is_right_and_idle_is_proved_so_by_the_scan_alone(parts):
    """Nothing is asked of the table again, and it is not among the judged ones."""
    parts.post(2, "u1", "u2", **{"mark#3": mark(9)})
    parts.like("u1", number=9, at=NOW - CLOCKS_DIFFER_S - 1)
    parts.post(0, post="p2")
    report = parts.audit()
    assert (report.parents, report.children, report.judged) == (2, 2, 0)
    assert (report.drifting, report.unjudged, report.orphans) == ({}, {}, {})
    assert parts.done("item", "children") == []


def drifts(parts):
    """Let the tally differ from the children."""
    parts.post(3, "u1", "u2")


def changed(parts):
    """Let a child change while the scan goes on."""
    parts.post(2, "u1", "u2", **{"mark#3": mark(9)})
    parts.like("u1", number=9, at=NOW - CLOCKS_DIFFER_S)


def waits(parts):
    """Let the tally equal the children by chance, while a change is still to come to it."""
    parts.post(2, "u1")
    parts.like("u2", number=9)


def foreign(parts):
    """Let a mark be of somebody else."""
    parts.post(2, "u1", "u2", **{"mark#3": {"S": "5"}})
    parts.like("u1", number=9)


def text(parts):
    """Let the tally be text."""
    parts.post(2, "u1", "u2", likeTally={"S": "two"})


@pytest.mark.parametrize("case", [drifts, changed, waits, foreign, text], ids=lambda case: case.__name__)
def test_any_doubt_leads_to_the_exact_procedure(parts, case):
    """What the scan saw is then not taken for anything."""
    case(parts)
    assert parts.audit().judged == 1
    assert parts.done("item") == [("item", P1)]


def test_what_the_scan_saw_is_not_what_is_reported(parts):
    """A like that came while the scan went on made the tally look wrong, and it is not."""
    parts.post(1, "u1", **{"mark#3": mark(8)})
    parts.like("u2", number=9, at=NOW)
    report = parts.audit()
    assert (report.judged, report.drifting, report.waiting, report.waiting_since) == (1, {}, 1, NOW)


def test_each_drifting_parent_is_reported_with_its_tally_and_truth(parts):
    """Too high, too low and below zero; a parent that is right is not among them."""
    parts.post(2, "u1", "u2", post="p1")
    parts.post(5, "u1", post="p2")
    parts.post(-1, post="p3")
    parts.post(0, "u1", "u2", "u3", post="p4")
    report = parts.audit()
    assert report.drifting == {
        P2: [Tally("likeTally", 5, 1)],
        ("POST#p3", "META"): [Tally("likeTally", -1, 0)],
        ("POST#p4", "META"): [Tally("likeTally", 0, 3)],
    }
    assert (report.parents, report.judged, report.repaired) == (4, 3, set())
    assert parts.table.writes() == 0


# The exact procedure.


def test_a_parent_is_read_before_its_children_and_they_before_the_stream(parts):
    """The order makes the verdict exact; the stream is also read first of all, for what it may lose meanwhile."""
    parts.post(0, "u1", "u2", "u3")
    parts.judge()
    assert [entry[0] for entry in parts.log] == ["stream", "item", "children", "children", "stream"]


def test_every_page_of_children_counts(parts):
    """However many there are."""
    parts.page = 1
    parts.post(3, *"abc")
    parts.post(4, *"abcde", post="p2")
    assert parts.judge(P1, P2).drifting == {P2: [Tally("likeTally", 4, 5)]}


def test_how_far_the_marks_reach_is_told_to_the_stream(parts):
    """So that the end of a shard is not taken for reached too early; of a mark of yesterday nothing may be left."""
    parts.post(5, "u1", **{"mark#3": mark(9), "mark#2": mark(7, at=NOW - 23 * 3600)})
    parts.post(5, "u1", post="p2", **{"mark#3": mark(12), "mark#4": mark(5, at=NOW - 23 * 3600 + 1)})
    parts.post(5, "u1", post="p3", **{"mark#3": mark(99), "mark#1": {"S": "5"}})
    parts.judge(P1, P2, ("POST#p3", "META"))
    assert {name: reached.number for name, reached in parts.reached.items()} == {
        "mark#3": padded("12"),
        "mark#4": padded("5"),
    }


def test_children_are_counted_once_though_two_rules_cover_them(parts):
    """Where one prefix begins with another, one Query brings both; a comment's replies are told from other ones."""
    parts.post(1, "u1", "u2", reactions={"N": "3"}, comments={"N": "2"})
    parts.like("u3", prefix="LIKE#GUEST#")
    for name in ("c1#r1", "c1#r2", "c11#r3"):
        parts.like(name, prefix="REPLY#")
    comment = ("POST#p1", "COMMENT#c1")
    parts.table.items[comment] = {"PK": {"S": comment[0]}, "SK": {"S": comment[1]}}
    report = parts.judge(P1, comment, rules=REPLIES)
    assert report.drifting == {
        P1: [Tally("likeTally", 1, 2), Tally("comments", 2, 3)],
        comment: [Tally("replies", 0, 2)],
    }
    assert {entry[2] for entry in parts.done("children")} == {"LIKE#", "REPLY#", "REPLY#c1#"}
    assert parts.audit(rules=REPLIES, mend=True).repaired == {P1, comment}
    assert parts.audit(rules=REPLIES).drifting == {}


def test_children_without_a_parent_are_orphans(parts):
    """They are counted as such; nothing drifts, and nothing is brought back."""
    parts.like("u1")
    parts.like("u2")
    report = parts.audit(mend=True)
    assert (report.orphans, report.parents, report.children) == ({P1: 2}, 0, 2)
    assert (report.drifting, report.unjudged, P1 in parts.table.items) == ({}, {}, False)


def test_a_parent_that_is_deleted_while_it_is_audited_is_unjudged(parts):
    """It was there, and no tally of it is left; children that it leaves are orphans."""
    parts.post(5, "u1")
    parts.meanwhile["stream", 1] = lambda: parts.table.items.pop(P1)
    report = parts.audit(mend=True)
    assert report.unjudged == {P1: "it was deleted while it was audited"}
    assert (report.orphans, report.drifting) == ({P1: 1}, {})


def test_a_parent_that_is_deleted_before_its_repair_does_not_drift_any_more(parts):
    """The verdict was of a parent that is gone."""
    parts.post(5, "u1")
    parts.meanwhile["stream", 2] = lambda: parts.table.items.pop(P1)
    report = parts.judge(mend=True)
    assert report.unjudged == {P1: "it was deleted while it was audited"}
    assert (report.drifting, report.repaired, report.unrepaired) == ({}, set(), {})
    assert P1 not in parts.table.items


def test_what_cannot_be_judged_is_not_repaired_and_the_others_are(parts):
    """The reason is reported."""
    parts.post(2, "u1", likeTally={"S": "two"})
    parts.post(5, "u1", post="p2")
    report = parts.audit(mend=True)
    assert "set it to a number first" in report.unjudged[P1]
    assert (report.repaired, parts.table.tally("p2")) == ({P2}, 1)
    assert parts.table.items[P1]["likeTally"] == {"S": "two"}


def stumble(parts, error, times, first=2):
    """Let the stream raise an error some times in a row."""

    def fail():
        raise error

    parts.meanwhile |= {("stream", first + number): fail for number in range(times)}


def test_a_parent_is_read_again_where_the_stream_was_trimmed(parts):
    """What was lost may have been a change of its children."""
    parts.post(5, "u1")
    stumble(parts, Disturbed("trimmed"), READINGS - 1)
    report = parts.judge()
    assert (report.drifting, report.unjudged) == ({P1: [Tally("likeTally", 5, 1)]}, {})
    assert len(parts.done("item")) == READINGS


def test_a_parent_is_unjudged_where_something_always_gets_in_between(parts):
    """After some readings it is said so."""
    parts.post(5, "u1")
    stumble(parts, Disturbed("trimmed"), READINGS)
    report = parts.judge(mend=True)
    assert (report.unjudged, report.drifting, parts.table.writes()) == ({P1: "trimmed"}, {}, 0)


@pytest.mark.parametrize("first", [1, 2], ids=["at first", "after the reading"])
@pytest.mark.parametrize("way", ["audit", "judge"])
def test_nothing_is_judged_where_the_stream_is_not_read_to_its_end(parts, way, first):
    """Each parent is reported with the reason."""
    parts.post(5, "u1")
    stumble(parts, Unjudged("no time"), 1, first)
    report = getattr(parts, way)()
    assert (report.unjudged, report.drifting) == ({P1: "no time"}, {})


@pytest.mark.parametrize("way", ["audit", "judge"])
def test_a_stream_that_is_trimmed_all_the_time_leaves_everything_unjudged(parts, way):
    """The first look is tried again, and then given up."""
    parts.post(5, "u1")
    stumble(parts, Disturbed("trimmed"), READINGS, first=1)
    assert getattr(parts, way)().unjudged == {P1: "trimmed"}
    assert parts.done("item") == []


@pytest.mark.parametrize("way", ["audit", "judge"])
def test_a_first_look_that_is_disturbed_is_taken_again(parts, way):
    """What was trimmed then is not missed later."""
    parts.post(5, "u1")
    stumble(parts, Disturbed("trimmed"), READINGS - 1, first=1)
    report = getattr(parts, way)()
    assert (list(report.drifting), report.unjudged) == ([P1], {})
    assert len(parts.done("stream")) == READINGS + 1


def test_children_that_take_too_long_leave_their_parent_unjudged(parts):
    """The port says so when its time is over."""
    parts.post(5, "u1")

    def fail():
        raise Unjudged("no time")

    parts.meanwhile["children", 1] = fail
    assert parts.judge().unjudged == {P1: "no time"}


def test_overdue_is_what_was_overdue_when_the_parent_was_read(parts):
    """A change that grows too old while the children are read may be counted meanwhile: it was waiting."""
    parts.post(0)
    parts.like("u1", number=9, at=LATE + 60)

    def an_hour_later():
        parts.time += 3600

    parts.meanwhile["children", 1] = an_hour_later
    report = parts.judge(mend=True)
    assert (report.drifting, report.waiting) == ({}, 1)


def test_a_change_that_is_too_old_is_repaired_and_its_mark_moved_over_it(parts):
    """It was given up; when it comes after all, it is dropped."""
    parts.post(0)
    parts.like("u1", number=9, at=LATE)
    report = parts.audit(mend=True)
    assert report.repaired == {P1}
    assert parts.table.marks("p1")["mark#3"] == mark(9, LATE)["M"]
    count(DynamoDbTable(parts.table, "T"), Share(P1, [(padded("9"), "likeTally", 1, 0)], LATE), SHARD, NOW)
    assert parts.table.tally("p1") == 1


def test_without_a_mapping_nothing_is_waited_for_but_what_comes_during_the_reading(parts):
    """That may have come after its page was read: a mark moved over it would hide it for ever."""
    parts.post(0)
    parts.like("u1", number=9)
    parts.meanwhile["children", 1] = lambda: parts.like("u2", number=10, at=NOW)
    report = parts.judge(mend=True, overdue_s=0)
    assert (report.repaired, report.waiting) == ({P1}, 1)
    assert parts.table.tally("p1") == 1
    assert parts.table.marks("p1")["mark#3"]["seq"]["S"] == padded("9")


def test_the_mark_that_a_repair_moves_is_the_one_that_the_aggregator_reads(parts):
    """Without a tumbling window it knows no shard."""
    parts.post(0)
    parts.like("u1", number=9, at=LATE)
    assert parts.judge(mend=True, names_shards=False).repaired == {P1}
    assert set(parts.table.marks("p1")) == {"mark#stream", REPAIR_MARK}


# Repair.


def test_without_being_asked_to_nothing_is_written(parts):
    """An audit reads."""
    parts.post(5, "u1")
    assert parts.audit().drifting == {P1: [Tally("likeTally", 5, 1)]}
    assert parts.table.writes() == 0


def test_what_was_repaired_is_reported_as_it_was(parts):
    """Drift and repair are both told, and the next audit finds nothing."""
    parts.post(5, "u1")
    report = parts.audit(mend=True)
    assert (report.drifting, report.repaired) == ({P1: [Tally("likeTally", 5, 1)]}, {P1})
    assert (parts.table.tally("p1"), last_repair(parts.table.items[P1])) == (1, "r1")
    assert parts.audit().drifting == {}


def test_a_repair_whose_answer_is_lost_is_recognized_and_not_repeated(parts):
    """The parent is judged again, and says which repair was its last."""
    parts.post(5, "u1")
    parts.table.plant("p1", [LOST])
    report = parts.judge(mend=True)
    assert (report.repaired, report.unrepaired, parts.table.writes()) == ({P1}, {}, 1)
    assert report.drifting == {P1: [Tally("likeTally", 5, 1)]}
    assert parts.table.tally("p1") == 1


def test_a_repair_that_the_sdk_sends_twice_is_done(parts):
    """The second one is refused for the name of the first."""
    parts.post(5, "u1")
    once = parts.table.update_item

    def twice(**request):
        once(**request)
        return once(**request)

    parts.table.update_item = twice
    report = parts.judge(mend=True)
    assert (report.repaired, report.unrepaired, parts.table.writes()) == ({P1}, {}, 2)
    assert len(parts.done("item")) == 1


def test_a_repair_that_does_not_get_through_is_tried_again_and_then_reported(parts):
    """Throttled to the end: the drift is still there."""
    parts.post(5, "u1")
    parts.table.plant("p1", [client_error("ThrottlingException")] * REPAIRS)
    report = parts.judge(mend=True)
    assert list(report.unrepaired) == [P1]
    assert (report.repaired, parts.table.writes(), parts.table.tally("p1")) == (set(), REPAIRS, 5)


def test_a_repair_that_can_never_succeed_is_tried_once(parts):
    """An item that is full stays full."""
    parts.post(5, "u1")
    parts.table.plant("p1", [client_error("ValidationException", "Item size has exceeded the maximum")] * 2)
    report = parts.judge(mend=True)
    assert "exceeded the maximum" in report.unrepaired[P1]
    assert parts.table.writes() == 1


def test_of_two_auditors_one_repairs(parts):
    """The second one's verdict is of a parent that was repaired since; judged again, it has no drift to report."""
    parts.post(5, "u1")
    others = iter("abc")
    parts.meanwhile["stream", 2] = lambda: parts.judge(mend=True, new_name=lambda: next(others))
    report = parts.judge(mend=True)
    assert (parts.table.tally("p1"), last_repair(parts.table.items[P1])) == (1, "a")
    assert (report.drifting, report.repaired, report.unrepaired) == ({}, set(), {})


def test_a_parent_that_is_repaired_by_others_again_and_again_is_given_up(parts):
    """The report says that its repair did not succeed."""
    parts.post(5, "u1")

    def other():
        parts.table.items[P1] |= {"likeTally": {"N": "7"}, REPAIR_MARK: mark(len(parts.log))}

    parts.meanwhile = {("stream", 2 + number): other for number in range(REPAIRS)}
    report = parts.judge(mend=True)
    assert report.unrepaired == {P1: "it changed each time between its audit and its repair"}
    assert (report.repaired, list(report.drifting)) == (set(), [P1])


def test_a_post_made_anew_is_not_repaired_by_what_was_found_of_the_old_one(parts):
    """It is judged for itself."""
    parts.post(5, "u1", createdAt={"N": "1"})
    parts.meanwhile["stream", 2] = lambda: parts.post(1, createdAt={"N": "2"})
    report = parts.judge(mend=True)
    assert (report.drifting, report.repaired) == ({}, set())
    assert parts.table.tally("p1") == 1


def test_likes_that_are_counted_during_the_audit_are_kept_by_its_repair(parts):
    """The tally ends as the children say, though it was never still."""
    parts.post(4, "u1", **{"mark#3": mark(8)})

    def liked():
        parts.like("u2", number=9, at=NOW)
        count(DynamoDbTable(parts.table, "T"), Share(P1, [(padded("9"), "likeTally", 1, 0)], NOW), SHARD, NOW)

    parts.meanwhile["item", 1] = liked
    report = parts.judge(mend=True)
    assert (report.drifting, report.repaired) == ({P1: [Tally("likeTally", 4, 1)]}, {P1})
    assert parts.table.tally("p1") == 2


# Transactions.


def test_by_transactions_a_parent_at_rest_is_judged_and_repaired(parts):
    """Old changes are in its tally, whatever the marks say."""
    parts.post(5, "u1", **{"mark#3": mark(1, NOW - 90_000)})
    parts.like("u1", number=9, at=NOW - 60)
    assert parts.audit(mend=True, path="transaction").repaired == {P1}
    assert parts.table.tally("p1") == 1
    report = parts.audit(path="transaction")
    assert (report.judged, report.drifting) == (0, {})


def test_by_transactions_a_parent_in_motion_is_read_again_and_then_unjudged(parts):
    """There are no marks to tell the changes apart."""
    parts.post(5, "u1")
    parts.like("u1", number=9, at=NOW)
    report = parts.judge(mend=True, path="transaction")
    assert list(report.unjudged) == [P1]
    assert (len(parts.done("item")), parts.table.writes()) == (READINGS, 0)


def test_by_transactions_a_like_between_verdict_and_repair_is_kept(parts):
    """The repair is refused and made anew: its verdict was of another tally."""
    parts.post(5, "u1")

    def liked():
        parts.like("u2")
        parts.table.items[P1]["likeTally"] = {"N": "6"}

    parts.meanwhile["stream", 2] = liked
    assert parts.judge(mend=True, path="transaction").repaired == {P1}
    assert parts.table.tally("p1") == 2


# Groups and report.


def test_a_collection_is_one_group_over_several_pages(parts):
    """Children and parents may stand in any order; the group begins with its first page."""
    parts.post(2, "u1", "u2")
    parts.post(1, "u1", post="p2")
    items = [parts.table.items[key] for key in sorted(parts.table.items)]
    first, second = groups([(1.0, items[:1]), (2.0, items[1:2]), (3.0, []), (4.0, items[2:])], LIKES)
    assert (first.partition_key, first.began, first.children, list(first.parents)) == ("POST#p1", 1.0, 2, ["META"])
    assert (second.partition_key, second.began, second.children) == ("POST#p2", 4.0, 1)
    assert first.counts == {("META", "likeTally"): 2}
    assert list(groups([], LIKES)) == []


def test_a_collection_in_two_parts_is_not_proved_right_by_one_of_them(parts):
    """The part with the parent may look right; the other one's children have no parent there, and raise the doubt."""
    parts.post(2, "u1", "u2", "u3")
    items = [parts.table.items[key] for key in sorted(parts.table.items)]
    likes, meta = items[:3], items[3]
    auditor, report = parts.auditor(), Report()
    auditor.audit(
        [*groups([(NOW, [likes[0]])], LIKES), *groups([(NOW, [*likes[1:], meta])], LIKES)], report, mend=False
    )
    assert report.drifting == {P1: [Tally("likeTally", 2, 3)]}
    assert (report.parents, report.children, report.judged) == (1, 3, 1)


def test_a_group_knows_parents_of_every_rule():
    """A child counts on each of its parents; what no rule knows is left out."""
    group = Group("POST#p1", 1.0)
    for key in ("META", "COMMENT#c1", "REPLY#c1#r1", "REPLY#c2#r1", "LIKE#USER#u1", "NOTE#1"):
        group.add({"PK": {"S": "POST#p1"}, "SK": {"S": key}}, REPLIES)
    assert group.children == 3
    assert {key for _, key in group.all_parents()} == {"META", "COMMENT#c1", "COMMENT#c2"}
    assert group.counts["META", "comments"] == 2


def test_the_report_adds_up_over_several_rounds(parts):
    """Figures are sums, and the oldest waiting change is the oldest of all."""
    report = Report()
    for post, at in (("p1", NOW - 30), ("p2", NOW - 90), ("p3", NOW - 10)):
        parts.post(0, post=post)
        parts.like("u1", post, number=9, at=at)
        items = [parts.table.items[key] for key in sorted(parts.table.items) if key[0] == f"POST#{post}"]
        parts.auditor().audit(list(groups([(NOW, items)], LIKES)), report, mend=False)
    assert (report.parents, report.children, report.judged) == (3, 3, 3)
    assert (report.waiting, report.waiting_since) == (3, NOW - 90)
