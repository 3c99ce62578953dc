"""A table is audited in rounds: what they find, how they go on, what they read, and how little memory they take."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from audited import AuditedTable
from builders import NOW
from fakes import client_error
from tallyctl import audit as audits
from tallyctl.audit import (
    Facts,
    _attributes,
    _clock_offset,
    facts,
    rounds,
    segments_of_posts,
    segments_of_table,
)
from tallyctl.errors import TallyctlError
from tallyctl.findings import Findings
from tallystream.audit import SHARDLESS_MARK
from tallystream.auditor import Auditor, Report
from tallystream.rules import DEFAULT_COUNTERS, Rules

SEGMENTS = 3
MOST_MB = 300
COMMENTS = json.dumps(
    [
        {"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},
        {"child": "REPLY#{comment}#", "parent": "COMMENT#{comment}", "attribute": "replyTally"},
    ]
)


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


@pytest.fixture
def audited():
    """Give a table with twenty posts of three likes each, counted long ago."""
    audited = AuditedTable()
    for number in range(20):
        audited.table.add_post(f"p{number}")
        audited.like(f"p{number}", "u1", "u2", "u3")
        audited.settle(f"p{number}")
    audited.rest()
    return audited


@pytest.fixture
def findings(tmp_path):
    """Give a function that opens the findings of this audit; they are kept."""
    opened = []

    def findings():
        opened.append(Findings({"table": "T"}, tmp_path / "findings"))
        return opened[-1]

    yield findings
    for one in opened:
        one.close()


def segments(audited, findings, *, page_size=7):
    """Return the segments of a scan, from where the findings say that they go on."""
    audited.table.page_size = page_size
    return segments_of_table(audited.auditor().items, SEGMENTS, audited.rules, findings.place, lambda pages: pages)


def of_posts(audited, findings, *posts):
    """Return the segments of some posts, from where the findings say that they go on."""
    keys = [f"POST#{post}" for post in posts]
    return segments_of_posts(audited.auditor().items, keys, audited.rules, findings.place, lambda pages: pages)


def audit(audited, findings, parts=None, *, mend=False, **changes):
    """Audit the table in rounds and return the figures."""
    auditor = audited.auditor(**changes)
    rounds(auditor, parts or segments(audited, findings), findings, lambda: 0.0, mend=mend)
    return findings.figures(audited.now())


def drifts(findings):
    """Return the drifts by post."""
    return {drift.parent[0].removeprefix("POST#"): drift.drift for drift in findings.drifting()}


def test_a_table_that_is_right_is_proved_right_by_its_scan_alone(audited, findings):
    """No post is read for itself, and every child is counted once, whatever the pages are."""
    found = findings()
    for size in (1, 4, 1000):
        figures = audit(audited, found, segments(audited, Findings({}), page_size=size))
    assert (figures["parents"], figures["children"], figures["judged"], figures["wrong"]) == (60, 180, 0, 0)
    assert audited.posts() == set()


def test_exactly_what_drifts_is_found_and_read_once_more(audited, findings):
    """Too high, too low, and a like that went without a record."""
    audited.settle("p3", 5)
    audited.settle("p7", 1)
    del audited.table.items["POST#p11", "LIKE#USER#u2"]
    found = findings()
    figures = audit(audited, found)
    assert drifts(found) == {"p3": 2, "p7": -2, "p11": 1}
    assert (figures["judged"], figures["unrepaired"], figures["repaired"]) == (3, 3, 0)
    assert audited.posts() <= {"p3", "p7", "p11"}
    assert audited.table.writes() == 0


def test_a_repair_takes_the_drift_out_and_the_next_audit_finds_none(audited, findings):
    """One UpdateItem a parent."""
    audited.settle("p3", 5)
    audited.settle("p7", 1)
    first = findings()
    assert audit(audited, first, mend=True)["repaired"] == 2
    assert (audited.table.tally("p3"), audited.table.tally("p7"), audited.table.writes()) == (3, 3, 2)
    first.remove()
    first.close()
    assert audit(audited, findings())["wrong"] == 0


def test_posts_without_tallies_are_filled_while_likes_keep_coming(audited, findings):
    """A backfill; what comes during it waits for the aggregator and is not counted by it."""
    for number in range(20):
        del audited.table.items[f"POST#p{number}", "META"]["likeTally"]
    audited.like("p5", "late")
    assert audit(audited, findings(), mend=True)["repaired"] == 20
    assert [audited.table.tally(f"p{number}") for number in range(20)] == [3] * 20


def test_every_rule_is_audited(findings):
    """Replies of comments as well as likes, in one item collection."""
    audited = AuditedTable(COMMENTS)
    audited.table.add_post("p1")
    items = audited.table.items
    for comment in ("c1", "c2"):
        key = {"PK": {"S": "POST#p1"}, "SK": {"S": f"COMMENT#{comment}"}}
        items["POST#p1", f"COMMENT#{comment}"] = key | {"replyTally": {"N": "2"}}
        for number in range(2 if comment == "c1" else 4):
            audited.table.put_item(Item={"PK": {"S": "POST#p1"}, "SK": {"S": f"REPLY#{comment}#r{number}"}})
    audited.rest()
    found = findings()
    figures = audit(audited, found)
    assert (figures["parents"], figures["children"]) == (3, 6)
    assert [(drift.parent[1], drift.attribute, drift.drift) for drift in found.drifting()] == [
        ("COMMENT#c2", "replyTally", -2)
    ]


@pytest.fixture
def short_rounds(monkeypatch):
    """Have no more than six item collections a round."""
    monkeypatch.setattr(audits, "FIRST_ROUND", 3)
    monkeypatch.setattr(audits, "ROUND_GROUPS", 6)


@pytest.mark.usefixtures("short_rounds")
def test_a_round_takes_so_many_collections_and_no_more(audited, findings, monkeypatch):
    """The first ones fewer; together they take all, each once."""
    sizes = []

    def spy(self, groups, report, *, mend):
        sizes.append(len(groups))
        original(self, groups, report, mend=mend)

    original = Auditor.audit
    monkeypatch.setattr(Auditor, "audit", spy)
    assert audit(audited, findings())["parents"] == 20
    assert sizes[0] == 3
    assert max(sizes) <= 6
    assert sum(sizes) == 20


def test_a_round_ends_by_its_items_too(audited, findings, monkeypatch):
    """A few posts may have as many likes as many have."""
    monkeypatch.setattr(audits, "ROUND_ITEMS", 3)
    assert audit(audited, findings())["children"] == 60
    assert audited.caught_up >= 20 / SEGMENTS


@pytest.mark.usefixtures("short_rounds")
def test_an_interrupted_audit_goes_on_where_it_was(audited, findings, monkeypatch):
    """Whatever round that was: the sums are those of an audit in one go, and nothing is read twice."""
    audited.settle("p3", 5)
    original = Auditor.audit
    for after in range(1, 4):
        seen = []

        def stop(self, groups, report, *, mend, seen=seen, after=after):
            if len(seen) == after:
                raise Interrupted
            original(self, groups, report, mend=mend)
            seen.append([group.partition_key for group in groups])

        found = findings()
        monkeypatch.setattr(Auditor, "audit", stop)
        with pytest.raises(Interrupted):
            audit(audited, found)
        settled = {key for part in seen for key in part}
        found.close()

        def look(self, groups, report, *, mend, settled=settled):
            assert settled.isdisjoint(group.partition_key for group in groups)
            original(self, groups, report, mend=mend)

        monkeypatch.setattr(Auditor, "audit", look)
        found = findings()
        figures = audit(audited, found)
        assert (figures["parents"], figures["children"]) == (20, 60)
        assert drifts(found) == {"p3": 2}
        found.remove()
        found.close()


@pytest.mark.usefixtures("short_rounds")
def test_an_audit_that_failed_in_its_table_goes_on_too(audited, findings):
    """As where rights are missing for a while: the error is raised, and what was settled is kept."""
    found, calls = findings(), []
    scan = audited.table.scan

    def fail(**request):
        calls.append(request)
        if len(calls) > 8:
            raise client_error("AccessDeniedException", operation="Scan")
        return scan(**request)

    audited.table.scan = fail
    with pytest.raises(Exception, match="AccessDenied"):
        audit(audited, found)
    audited.table.scan = scan
    assert 0 < found.figures(0)["parents"] < 20
    found.close()
    assert audit(audited, findings())["parents"] == 20


def test_a_finished_audit_reads_nothing_again(audited, findings):
    """The file of one that was interrupted after its last round has all there is."""
    found = findings()
    audit(audited, found)
    found.close()
    audited.table.calls.clear()
    caught_up = audited.caught_up
    found = findings()
    assert audit(audited, found)["parents"] == 20
    assert (audited.table.calls, audited.caught_up) == ([], caught_up)


@pytest.mark.usefixtures("short_rounds")
def test_a_like_that_sorts_behind_the_place_is_judged_when_it_goes_on(audited, findings, monkeypatch):
    """What comes into a collection that was settled shows as a part of it, which is no proof of anything."""
    original = Auditor.audit
    seen = []

    def stop(self, groups, report, *, mend):
        if seen:
            raise Interrupted
        original(self, groups, report, mend=mend)
        seen.extend(group.partition_key.removeprefix("POST#") for group in groups)

    monkeypatch.setattr(Auditor, "audit", stop)
    found = findings()
    with pytest.raises(Interrupted):
        audit(audited, found)
    found.close()
    monkeypatch.setattr(Auditor, "audit", original)
    audited.table.put_item(Item={"PK": {"S": f"POST#{seen[0]}"}, "SK": {"S": "ZZZ"}})
    audited.like(seen[0], "late")
    found = findings()
    figures = audit(audited, found)
    assert (figures["parents"], figures["wrong"], figures["not_judged"]) == (20, 0, 0)


def test_a_post_that_is_not_there_cannot_be_told(audited, findings):
    """It is named; one without an item that has likes is an orphan's, and is told."""
    audited.like("gone", "u1", "u2")
    audited.table.items["POST#other", "SCRATCH"] = {"PK": {"S": "POST#other"}, "SK": {"S": "SCRATCH"}}
    found = findings()
    figures = audit(audited, found, of_posts(audited, found, "p1", "nobody", "gone", "other"))
    assert [(parent, "no such post" in reason) for parent, reason in found.unjudged()] == [
        (("POST#nobody", "META"), True),
        (("POST#other", "META"), True),
    ]
    assert list(found.orphaned()) == [(("POST#gone", "META"), 2)]
    assert (figures["parents"], figures["orphans"]) == (1, 2)


def test_a_post_that_was_settled_before_an_interruption_is_not_read_again(audited, findings):
    """Nor is it missing: its place says that something was there."""
    found = findings()
    (part,) = of_posts(audited, found, "p1")
    (group,) = part.take(1, 1)
    found.add(Report(parents=1, children=group.children), {0: part.place})
    assert not part.place.done
    found.close()
    found = findings()
    figures = audit(audited, found, of_posts(audited, found, "p1"))
    assert (figures["parents"], figures["children"], figures["not_judged"]) == (1, 3, 0)


def test_a_place_is_the_last_item_of_a_settled_collection(audited, findings):
    """Real segments take no other key to go on after; likes without a post end with a like."""
    audited.like("gone", "u1", "u2")
    found = findings()
    for part in segments(audited, found):
        for group in iter(lambda part=part: part.take(1, 1), []):
            keys = [key for key in audited.table.items if key[0] == group[0].partition_key]
            assert part.place.after == max(keys)
    (part,) = of_posts(audited, found, "gone")
    part.take(1, 1)
    assert part.place.after == ("POST#gone", "LIKE#USER#u2")


def test_an_empty_table_is_right(findings):
    """And the stream is not read for it."""
    audited = AuditedTable()
    assert audit(audited, findings())["parents"] == 0
    assert audited.caught_up == 0


# What DynamoDB says of the table.


class Described:
    """A client that describes one table."""

    exceptions = SimpleNamespace(ResourceNotFoundException=KeyError)

    def __init__(self, **changes):
        keys = [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}]
        self.table = {
            "KeySchema": keys,
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
            "StreamSpecification": {"StreamEnabled": True},
            "LatestStreamArn": "arn",
            "ItemCount": 10,
            "TableSizeBytes": 4097,
            **changes,
        }

    def describe_table(self, *, TableName):  # noqa: N803 - boto3's names
        """Describe it."""
        if TableName != "T":
            raise KeyError(TableName)
        return {"Table": self.table, "ResponseMetadata": {"HTTPHeaders": {}}}


def test_the_scan_costs_a_unit_every_four_kilobytes():
    """Strongly consistent, and begun ones are whole: the estimate that is shown first."""
    found = facts(Described(), "T")
    assert (found.stream_arn, found.items, found.scan_units) == ("arn", 10, 2)
    assert Facts("arn", 0, 400_000_000, 0.0).scan_units == 97_657


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"StreamSpecification": {}}, "T has no stream"),
        ({"StreamSpecification": {"StreamEnabled": False}}, "T has no stream"),
        ({"KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}]}, "the keys of T are not PK and SK"),
        (
            {"AttributeDefinitions": [{"AttributeName": n, "AttributeType": "N"} for n in ("PK", "SK")]},
            "the keys of T are not PK and SK, both strings",
        ),
    ],
)
def test_a_table_that_cannot_be_audited_is_one_clear_line(changes, said):
    """No stream, or other keys."""
    with pytest.raises(TallyctlError, match=said):
        facts(Described(**changes), "T")


def test_a_table_that_is_not_there_is_one_clear_line():
    """The line has its name."""
    with pytest.raises(TallyctlError, match="there is no table U here"):
        facts(Described(), "U")


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 42.0])
def test_the_clock_is_dynamodbs(ahead):
    """Records are dated by it, and a machine's own may be wrong; the header is right to half a second."""
    date = datetime.fromtimestamp(NOW + ahead, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert abs(_clock_offset({"date": date}, NOW) - ahead) <= 0.5
    assert _clock_offset({}, NOW) == 0.0


def test_a_scan_fetches_tallies_and_the_marks_of_the_streams_shards():
    """Nothing else of an item travels; where the names are too many for an expression, everything does."""
    rules = Rules.parse(DEFAULT_COUNTERS)
    assert _attributes(rules, ["shardId-1-a", "shardId-2-b"]) == ["likeTally", "mark#1-a", "mark#2-b", SHARDLESS_MARK]
    assert _attributes(rules, [f"shardId-{number}" for number in range(300)]) is None


def test_a_million_children_take_constant_memory():
    """Half of them one post's: filled in one run and proved right by the next one, which queries for nothing.

    In a process of its own, whose peak is nobody else's.
    """
    script = Path(__file__).with_name("million.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    filled, proved = (json.loads(line) for line in done.stdout.splitlines())
    assert (filled["children"], filled["repaired"], filled["wrong"]) == (1_000_000, 5001, 5001)
    assert (proved["children"], proved["judged"], proved["wrong"]) == (1_000_000, 0, 0)
    assert filled["queries"] > proved["queries"] == 0
    assert proved["grown_mb"] < MOST_MB
