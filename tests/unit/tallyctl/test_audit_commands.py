"""What `tallyctl audit` and `tallyctl redrive` take, print, and exit with."""

import json
import sys

import pytest

from tallyctl import audit as audits
from tallyctl import cli
from tallyctl import redrive as redrives
from tallyctl.findings import Findings
from tallyctl.redrive import Job, Named, Outcome
from tallyctl.stack import Counting, Stack
from tallystream.audit import Tally
from tallystream.auditor import Report
from tallystream.rules import DEFAULT_COUNTERS, Rules

P1 = ("POST#p1", "META")
COUNTING = Counting("T", Rules.parse(DEFAULT_COUNTERS), "stream", 21600, names_shards=True)
DRIFT = {"drifting": {P1: [Tally("likeTally", 5, 3)]}}


@pytest.fixture
def command(monkeypatch, capsys):
    """Give a function that runs the command line and returns the exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tallyctl", *map(str, arguments), "--endpoint-url", "http://127.0.0.1:4572"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture
def audit(monkeypatch, command):
    """Give a function that runs `audit` on what a report says; what was ordered is its attribute."""

    def run(report, *options):
        def audited(place, counting, order, say, progress):
            assert (place.endpoint_url, counting) == ("http://127.0.0.1:4572", COUNTING)
            run.order = order
            say("about 2 read units")
            progress(10, 3)
            findings = Findings({"table": "T"}, order.resume)
            findings.add(report, {}, read_units=2.0)
            return findings

        monkeypatch.setattr(audits, "run", audited)
        return command("audit", *options)

    monkeypatch.setattr(cli, "counting_of", lambda *_: COUNTING)
    return run


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (Report(parents=3), 0),
        (Report(orphans={P1: 2}), 0),
        (Report(**DRIFT), 1),
        (Report(**DRIFT, repaired={P1}), 0),
        (Report(**DRIFT, unrepaired={P1: "throttled"}), 1),
        (Report(unjudged={P1: "a mark is text"}), 2),
        (Report(**DRIFT, unjudged={("POST#p2", "META"): "a mark is text"}), 1),
        (Report(**DRIFT, repaired={P1}, unjudged={("POST#p2", "META"): "a mark is text"}), 2),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_exit_code_says_what_was_found(audit, report, code, options):
    """1 for drift that is left, 2 for what could not be told, 0 otherwise; 1 wins over 2."""
    assert audit(report, *options)[0] == code


def test_how_long_a_change_may_wait_can_be_said(audit):
    """Otherwise it is as long as the mapping may deliver it."""
    audit(Report(), "--overdue", "60")
    assert audit.order.overdue_s == 60
    audit(Report())
    assert audit.order.overdue_s is None


def test_the_estimate_comes_on_standard_error_and_the_object_alone_on_standard_output(audit):
    """So that a program can read it."""
    _, out, err = audit(Report(parents=3, **DRIFT), "--json")
    assert json.loads(out)["drifting"][0]["drift"] == 2
    assert "about 2 read units" in err


@pytest.mark.parametrize(
    ("options", "mend"),
    [([], False), (["--repair"], True), (["--repair", "--dry-run"], False), (["--dry-run"], False)],
)
def test_only_a_repair_that_is_no_dry_run_writes(audit, options, mend):
    """Whatever the order of the two."""
    audit(Report(), *options)
    assert audit.order.mend is mend


def test_the_options_are_the_order(audit, tmp_path):
    """Posts, threads and the file to go on from; the file is gone when all is shown."""
    file = tmp_path / "resume"
    audit(Report(), "--post", "p1", "--post", "p|2", "--workers", 3, "--resume", file)
    assert (audit.order.posts, audit.order.workers, audit.order.resume) == (["p1", "p|2"], 3, file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("report", "options", "shown"),
    [
        (Report(parents=1), [], ["Every tally is what its children say."]),
        (Report(**DRIFT), [], ["p1", "would add -2", "run it with --repair"]),
        (Report(**DRIFT, repaired={P1}), ["--repair"], ["added -2"]),
        (Report(**DRIFT, unrepaired={P1: "it changed"}), ["--repair"], ["it changed", "run it again"]),
        (Report(unjudged={P1: "a [mark] is text"}), [], ["p1: a [mark] is text", "could not be judged"]),
        (Report(orphans={P1: 2}), [], ["children without a parent: 2", "p1: 2"]),
        (Report(waiting=4, waiting_since=1), [], ["is the stream mapping on?"]),
        (
            Report(drifting={(f"POST#p{n}", "META"): [Tally("likeTally", n, 0)] for n in range(1, 31)}),
            [],
            ["20 largest of 30"],
        ),
    ],
)
def test_the_table_says_what_to_do_next(audit, report, options, shown):
    """A few rows and a line of advice."""
    _, out, _ = audit(report, *options)
    text = " ".join(out.split())
    for part in shown:
        assert part in text


def test_a_short_wait_is_worth_no_word(audit, monkeypatch):
    """Changes wait for seconds all the time."""
    monkeypatch.setattr(cli.time, "time", lambda: 1000.0)
    assert "mapping" not in audit(Report(waiting=4, waiting_since=101))[1]
    assert "for 15 min" in audit(Report(waiting=4, waiting_since=99))[1]


@pytest.mark.parametrize(("seconds", "shown"), [(960, "16 min"), (3600, "1 h 0 min"), (11_000, "3 h 3 min")])
def test_a_wait_is_shown_in_hours_and_minutes(seconds, shown):
    """Not in thousands of seconds."""
    assert cli._duration(seconds) == shown


def test_csv_goes_to_a_file_beside_the_table(audit, tmp_path):
    """Both at once."""
    file = tmp_path / "drift.csv"
    _, out, _ = audit(Report(**DRIFT), "--csv", file)
    assert file.read_text().splitlines()[1] == "drifting,POST#p1,META,likeTally,5,3,2,no,,"
    assert "would add" in out


def test_csv_to_standard_output_is_alone_there(audit):
    """The table moves to standard error."""
    _, out, err = audit(Report(**DRIFT), "--csv", "-")
    assert out.startswith("finding,PK,SK,")
    assert len(out.splitlines()) == 2
    assert "would add" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json", "--csv", "-"], "--json and --csv - both want standard output"),
        (["--post", "a#b"], "--post must not contain '#'"),
        (["--post", ""], "--post must be 1 to 256 bytes"),
        (["--csv", "/nowhere/to/be/found.csv"], "there is no folder /nowhere/to/be"),
    ],
)
def test_options_that_cannot_be_are_one_clear_line(audit, options, said):
    """Before anything is read."""
    code, _, err = audit(Report(), *options)
    assert (code, said in err) == (cli.TROUBLE, True), err


def test_a_csv_that_cannot_be_written_is_one_clear_line_and_the_findings_stay(audit, tmp_path):
    """With --resume, another run shows them again at once."""
    file = tmp_path / "resume"
    code, _, err = audit(Report(**DRIFT), "--csv", tmp_path, "--resume", file)
    assert (code, "Is a directory" in err, file.exists()) == (cli.TROUBLE, True, True)


@pytest.fixture
def redrive(monkeypatch, command):
    """Give a function that runs `redrive` with an outcome; what was ordered is its attribute."""
    stack = Stack("app", {})
    monkeypatch.setattr(cli, "find", lambda *_: ("place", stack))
    monkeypatch.setattr(cli, "counting", lambda *_: COUNTING)

    def run(outcome, *options):
        def redriven(place, found, counting, order):
            assert (place, found, counting) == ("place", stack, COUNTING)
            run.order = order
            return outcome

        monkeypatch.setattr(redrives, "run", redriven)
        return command("redrive", *options)

    return run


NAMED = Named("arn", "shardId-1", "1", "2", None)
DONE = Job("m0", NAMED, {P1, ("POST#p2", "META")})
KEPT = Job("m1", NAMED, {P1}, {P1: "its [tally] is text", ("POST#p2", "META"): "throttled"})


def test_an_empty_failure_queue_is_no_failure(redrive):
    """It is said to be empty."""
    assert redrive(Outcome()) == (0, "The failure queue is empty.\n", "")
    assert json.loads(redrive(Outcome(), "--json")[1])["messages"] == 0


def test_what_is_kept_is_named_and_the_exit_code_is_two(redrive):
    """With the reason; the sums follow."""
    outcome = Outcome([DONE, KEPT], done=1, counted=7)
    code, out, _ = redrive(outcome)
    assert code == cli.TROUBLE
    assert "kept m1: p1: its [tally] is text (and 1 more)" in out
    assert "2 messages with 2 parents: 7 changes counted" in out
    code, out, _ = redrive(outcome, "--json")
    assert (code, json.loads(out)) == (
        cli.TROUBLE,
        {
            "messages": 2,
            "done": 1,
            "dropped": 0,
            "kept": [
                {
                    "message": "m1",
                    "reason": "p1: its [tally] is text (and 1 more)",
                    "parents": [{"PK": "POST#p1", "SK": "META"}],
                }
            ],
            "parents": 2,
            "counted": 7,
            "drifting": 0,
            "repaired": 0,
        },
    )


def test_a_queue_that_is_worked_off_is_success(redrive):
    """And the options are the order."""
    code, out, _ = redrive(Outcome([DONE], counted=2), "--dry-run", "--max", 5, "--drop-trimmed")
    assert (code, "2 changes would be counted" in out) == (0, True)
    assert redrive.order == redrives.Order(5, dry_run=True, drop_trimmed=True)
