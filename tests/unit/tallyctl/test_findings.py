"""What an audit has found is kept, added up, written out, and gone on from."""

import csv
import io
import json

import pytest

from tallyctl.comparison.costs import PRICES
from tallyctl.errors import TallyctlError
from tallyctl.findings import COLUMNS, Findings, Place
from tallystream.audit import Tally
from tallystream.auditor import Report

PLAN = {"table": "T", "segments": "2"}
P1, P2 = ("POST#p1", "META"), ("POST#p2", "META")


def drift(parent, tally, truth, **more):
    """Return a report of one wrong tally."""
    return Report(parents=1, drifting={parent: [Tally("likeTally", tally, truth)]}, **more)


@pytest.fixture
def file(tmp_path):
    """Give the name of a file that is not there yet."""
    return tmp_path / "findings"


@pytest.fixture
def findings():
    """Give findings that nobody keeps."""
    findings = Findings(PLAN)
    yield findings
    findings.close()


def test_rounds_add_up(findings):
    """Sums are summed; of the waiting changes the oldest counts."""
    findings.add(Report(parents=2, children=5, judged=1, waiting=3, waiting_since=70), {}, read_units=1.5, seconds=2)
    findings.add(drift(P1, 5, 3, children=1, waiting_since=50), {}, read_units=1.0, seconds=1)
    findings.add(Report(parents=1, waiting_since=60), {}, read_units=0.5, seconds=1)
    figures = findings.figures(now=110.4)
    assert (figures["parents"], figures["children"], figures["judged"], figures["waiting"]) == (4, 6, 1, 3)
    assert (figures["waiting_since_s"], figures["read_units"], figures["seconds"]) == (60, 3.0, 4.0)
    assert figures["usd"] == round(3 * PRICES["read"].usd, 6)


def test_what_was_repaired_is_told_from_what_was_not(findings):
    """In parents and in tallies: a parent with two wrong tallies is repaired once."""
    two = {P1: [Tally("likeTally", -1, 3), Tally("replyTally", 2, 1)], P2: [Tally("likeTally", 9, 0)]}
    findings.add(Report(drifting=two, repaired={P1}, unrepaired={P2: "throttled"}), {})
    figures = findings.figures(0)
    assert (figures["wrong"], figures["unrepaired"], figures["repaired"], figures["negative"]) == (3, 1, 1, 1)
    shown = [
        (drift.parent, drift.attribute, drift.drift, drift.repaired, drift.reason) for drift in findings.drifting()
    ]
    assert shown == [  # the wrongest first
        (P2, "likeTally", 9, False, "throttled"),
        (P1, "likeTally", -4, True, None),
        (P1, "replyTally", 1, True, None),
    ]


def test_of_a_parent_that_is_found_twice_the_later_finding_stands(findings):
    """As where its collection lies in two segments of the scan."""
    findings.add(drift(P1, 5, 3), {})
    findings.add(drift(P1, 6, 3, repaired={P1}), {})
    assert [(drift.tally, drift.repaired) for drift in findings.drifting()] == [(6, True)]


def test_a_tally_of_38_digits_is_kept_whole(findings):
    """DynamoDB's numbers have so many, more than SQLite's integers."""
    findings.add(drift(P1, 10**38 - 1, 3), {})
    findings.add(drift(P2, -(10**37), 3), {})
    assert [drift.tally for drift in findings.drifting()] == [10**38 - 1, -(10**37)]
    assert findings.figures(0)["negative"] == 1


def test_an_audit_goes_on_with_its_file(file):
    """Places and findings are those of the last round, however the process ended."""
    first = Findings(PLAN, file)
    assert (first.resumed, first.place(0)) == (False, Place(None, done=False))
    first.add(drift(P1, 5, 3), {0: Place(P1, done=False), 1: Place(None, done=True)}, read_units=2.0)
    first.close()
    second = Findings(PLAN, file)
    assert second.resumed
    assert [second.place(segment) for segment in (0, 1)] == [Place(P1, done=False), Place(None, done=True)]
    second.add(Report(parents=2), {0: Place(P2, done=True)}, read_units=1.0)
    figures = second.figures(0)
    assert (figures["parents"], figures["read_units"], figures["unrepaired"]) == (3, 3.0, 1)
    second.remove()
    second.close()
    assert not file.exists()


def test_a_round_is_kept_whole_or_not_at_all(findings):
    """One that cannot be stored leaves neither findings nor places."""
    with pytest.raises(Exception, match="type 'object' is not supported"):
        findings.add(drift(P1, 5, 3, orphans={P2: object()}), {0: Place(P1, done=True)})
    assert (list(findings.drifting()), findings.place(0)) == ([], Place(None, done=False))


@pytest.mark.parametrize("change", [{"table": "U"}, {"segments": "8"}, {"repair": "True"}])
def test_an_audit_does_not_go_on_with_another_ones_file(file, change):
    """The line says what differs, and the file stays as it was."""
    Findings(PLAN, file).close()
    (name,) = change
    with pytest.raises(TallyctlError, match=rf"is of an audit with {name} .*, not {change[name]}: "):
        Findings({**PLAN, **change}, file)
    second = Findings(PLAN, file)
    assert second.resumed
    second.close()


def test_a_file_of_something_else_is_refused_and_stays_as_it_is(file):
    """Nobody's notes are overwritten by a mistyped name."""
    text = "my notes\n" * 100
    file.write_text(text)
    with pytest.raises(TallyctlError, match="is not a file of an interrupted audit"):
        Findings(PLAN, file)
    assert file.read_text() == text


def test_a_file_that_another_audit_has_open_is_refused(file):
    """Two audits would both go on from the same places."""
    first = Findings(PLAN, file)
    with pytest.raises(TallyctlError, match="database is locked; does another audit use it"):
        Findings(PLAN, file)
    first.close()


def test_a_file_in_a_folder_that_is_not_there_is_one_clear_line(tmp_path):
    """The line has the name."""
    with pytest.raises(TallyctlError, match=r"--resume .*/none/file: unable to open"):
        Findings(PLAN, tmp_path / "none" / "file")


@pytest.fixture
def full(findings):
    """Give findings of each kind."""
    findings.add(
        Report(
            parents=3,
            drifting={P1: [Tally("likeTally", 5, 3)], P2: [Tally("likeTally", 0, 4)]},
            repaired={P1},
            unrepaired={P2: "throttled"},
            unjudged={('POST#é, "x"', "META"): "a mark is text"},
            orphans={("POST#gone", "META"): 2},
        ),
        {},
    )
    return findings


def test_the_json_object_has_the_keys_that_others_read(full):
    """One object on one line, with a list a kind of finding."""
    out = io.StringIO()
    full.write_json(out, full.figures(0))
    assert out.getvalue().count("\n") == 1
    found = json.loads(out.getvalue())
    assert {"parents", "children", "orphans", "repaired", "negative", "waiting", "waiting_since_s"} < found.keys()
    assert {"judged", "read_units", "usd", "seconds"} < found.keys()
    assert (found["parents"], found["orphans"], found["repaired"]) == (3, 2, 1)
    parent = {"PK": "POST#p2", "SK": "META"}
    figures = {"attribute": "likeTally", "tally": 0, "truth": 4, "drift": -4}
    assert found["drifting"][0] == {"parent": parent, **figures, "repaired": False, "reason": "throttled"}
    assert found["drifting"][1]["repaired"] is True
    assert "reason" not in found["drifting"][1]
    assert found["unjudged"] == [{"parent": {"PK": 'POST#é, "x"', "SK": "META"}, "reason": "a mark is text"}]
    assert found["orphaned"] == [{"parent": {"PK": "POST#gone", "SK": "META"}, "children": 2}]


def test_the_csv_has_a_row_a_finding(full):
    """Quoted where that is needed, so that it reads back."""
    out = io.StringIO()
    full.write_csv(out)
    assert list(csv.reader(io.StringIO(out.getvalue()))) == [
        list(COLUMNS),
        ["drifting", *P2, "likeTally", "0", "4", "-4", "no", "", "throttled"],
        ["drifting", *P1, "likeTally", "5", "3", "2", "yes", "", ""],
        ["unjudged", 'POST#é, "x"', "META", "", "", "", "", "", "", "a mark is text"],
        ["orphaned", "POST#gone", "META", "", "", "", "", "", "2", "the parent does not exist"],
    ]


def test_without_findings_both_are_empty_and_whole(findings):
    """An audit that finds nothing prints the same object and a heading."""
    out, rows = io.StringIO(), io.StringIO()
    findings.write_json(out, findings.figures(0))
    findings.write_csv(rows)
    found = json.loads(out.getvalue())
    assert (found["drifting"], found["unjudged"], found["orphaned"], found["waiting_since_s"]) == ([], [], [], None)
    assert rows.getvalue() == ",".join(COLUMNS) + "\n"
