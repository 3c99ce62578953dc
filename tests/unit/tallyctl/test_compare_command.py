"""`tallyctl compare`: its options, its output, and what it says when something is missing."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from tallyctl import compare_command
from tallyctl.comparison import postgres, rows
from tallyctl.emulator import free_port
from tallyctl.errors import TallyctlError

app = typer.Typer()
app.command()(compare_command.compare_command)

NO_POSTGRES = {name: {"unavailable": "PostgreSQL is not installed: get it."} for name in postgres.PATHS}
CROSS_CHECK = {
    "requests": 30,
    "same": 28,
    "uncharged": 3,
    "differences": [{"path": "count", "operation": "GetItem", "ours": "0.5", "emulator": "1", "requests": 2}],
    "measured": {"milliseconds_p50": {"PutItem": 2.0, "Query": 3.0}},
}


@pytest.fixture
def run(vote, monkeypatch):
    """Give a function that runs the command on a small vote's figures; what was asked for is in its lists."""

    def compared(*arguments):
        *asked, progress = arguments
        run.asked.append(tuple(asked))
        progress("stream", 0, 1)
        return vote

    def on_postgres(likes, progress):
        run.likes.append(likes)
        progress("update", 0, 1)
        return NO_POSTGRES

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    run.asked, run.likes = [], []
    monkeypatch.setattr(compare_command.comparisons, "compare", compared)
    monkeypatch.setattr(compare_command.postgres, "run", on_postgres)
    return run


def words(text):
    """Return a text without the line breaks that the terminal's width made."""
    return " ".join(text.split())


def test_json_is_one_object_and_nothing_else(run, vote):
    """Progress goes to standard error; PostgreSQL's rows are beside the paths, not among them."""
    done = run("--workload", "vote", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads(json.dumps(vote.figures() | {"postgres": NO_POSTGRES}))


def test_every_option_reaches_the_comparison(run):
    """Under the name by which it is asked for; PostgreSQL gets the first of the same likes."""
    given = ("--operations", 3000, "--rate", 7.5, "--batch-window", 4.5, "--seed", 9)
    assert run("--workload", "churn", *given, "--json").exit_code == 0
    assert run.asked == [("churn", 3000, 7.5, 4.5, 9)]
    assert len(run.likes[0]) == postgres.DEFAULT_OPERATIONS


def test_by_default_it_is_the_social_network(run):
    """Ten thousand operations, a thousand a second, two seconds' window: the template's."""
    assert run("--json").exit_code == 0
    assert run.asked == [("social", 10_000, 1000.0, 2.0, 1)]


def test_all_workloads_are_one_object(run, vote):
    """By name, under `workloads`: the contract's keys are in each."""
    done = run("--workload", "all", "--no-postgres", "--json")
    assert [asked[0] for asked in run.asked] == ["vote", "social", "viral", "churn"]
    figures = json.loads(done.stdout)
    assert figures["workload"] == "all"
    assert figures["workloads"]["vote"]["paths"].keys() == vote.paths.keys()
    assert not run.likes


def test_people_see_the_table_and_the_recommendation(run, vote):
    """Every cell of it, what speaks against a path, what it rests on, and last of all what to take."""
    text = run("--workload", "vote").stdout
    shown = vote.figures()
    lines = [line.split() for line in text.splitlines()]
    for row in rows.rows(shown):
        assert " ".join(row).split() in lines
    for line in (*rows.objections(shown), *rows.assumptions(shown), NO_POSTGRES["update"]["unavailable"]):
        assert words(line) in words(text)
    assert words(text).endswith(words(vote.recommendation))


def test_the_table_fits_a_terminal_of_eighty_characters(run, vote):
    """A table that is wider is broken where nobody can read it."""
    shown = vote.figures()
    lines = run("--workload", "vote").stdout.splitlines()
    wanted = {" ".join(row).split()[0] for row in rows.rows(shown)}
    table = [line for line in lines if line.split()[:1] and line.split()[0] in wanted and re.search(r"\d\.\d{3}", line)]
    assert len(table) == len(shown["paths"])
    assert max(map(len, table)) <= 80


def test_the_report_is_a_page_in_a_folder_that_is_made(run, tmp_path, vote):
    """With its parents; the terminal says where it is."""
    folder = tmp_path / "new" / "report"
    done = run("--workload", "vote", "--report", folder)
    assert done.exit_code == 0
    assert vote.recommendation in (folder / "index.html").read_text(encoding="utf-8")
    assert str(folder / "index.html") in done.stdout


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(run, tmp_path):
    """Not after half a minute."""
    (tmp_path / "file").touch()
    done = run("--report", tmp_path / "file" / "report")
    assert isinstance(done.exception, TallyctlError)
    assert "--report" in str(done.exception)
    assert not run.asked


def test_a_workload_that_there_is_not_is_one_clear_line():
    """It names those that there are."""
    done = CliRunner().invoke(app, ["--workload", "votes", "--no-postgres"])
    assert isinstance(done.exception, TallyctlError)
    assert "vote, social, viral, churn" in str(done.exception)
    assert not done.output.strip()  # no bar of what never began


def test_a_server_that_does_not_start_leaves_the_other_figures(run, monkeypatch):
    """PostgreSQL is beside the point of the comparison: its rows say what was wrong."""

    def failing(*_, **__):
        raise TallyctlError("PostgreSQL did not start: no space left")

    monkeypatch.setattr(compare_command.postgres, "run", failing)
    figures = json.loads(run("--workload", "vote", "--json").stdout)
    assert figures["postgres"]["queue"] == {"unavailable": "PostgreSQL did not start: no space left"}
    assert figures["paths"]


def test_a_cross_check_without_an_emulator_says_what_starts_one(run):
    """Before anything else has run."""
    done = run("--cross-check", "--endpoint-url", f"http://127.0.0.1:{free_port()}")
    assert isinstance(done.exception, TallyctlError)
    assert "`tallyctl local up` starts one" in str(done.exception)
    assert not run.asked


def test_a_cross_check_is_a_table_and_an_object(run, monkeypatch):
    """Beside the workload's figures, in either form."""
    monkeypatch.setattr(compare_command, "_cross_checked", lambda *_: CROSS_CHECK)
    assert json.loads(run("--workload", "vote", "--cross-check", "--json").stdout)["cross_check"] == CROSS_CHECK
    text = words(run("--workload", "vote", "--cross-check").stdout)
    assert "count GetItem 0.5 1 2" in text
    assert "Of 30 requests, the emulator charged or refused 28 as we do" in text


def test_the_help_teaches(run):
    """It names the workloads and says what is left to chance."""
    text = words(run("--help").stdout)
    for word in ("vote", "social", "viral", "churn", "--report", "--cross-check", "--seed", "same figures"):
        assert word in text
