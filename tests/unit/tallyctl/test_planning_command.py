"""`tallyctl plan`: what it prints, and what it advises."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tallyctl.errors import TallyctlError
from tallyctl.planning import Traffic, plan
from tallyctl.planning_advice import API_THROTTLE, advice
from tallyctl.planning_command import plan_command

TEMPLATE = Path(__file__).parents[3] / "template.yaml"

app = typer.Typer()
app.command()(plan_command)


def run(*arguments):
    """Run the command."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def advised(**traffic):
    """Return the advice on a traffic as one text."""
    return "\n".join(advice(plan(Traffic(**traffic))))


def test_json_is_one_object_with_figures_and_notes():
    """Nothing else is on standard output."""
    done = run("--likes-per-second", 100, "--json")
    assert done.exit_code == 0
    figures = json.loads(done.stdout)
    assert figures["traffic"]["likes_per_second"] == 100
    assert {"write_units_per_second", "partitions", "key_shards", "prewarm", "staleness_s"} < figures.keys()
    assert len(figures["notes"]) >= 3


def test_every_option_reaches_the_plan():
    """Under the name by which it is asked for."""
    given = {
        "likes-per-second": 7.5,
        "posts": 11,
        "skew": 0.5,
        "peak-factor": 2.5,
        "like-bytes": 99,
        "post-bytes": 199,
        "batch-window": 4.5,
        "reads-per-second": 3.5,
        "batch-size": 50,
        "likes-kept": 12,
    }
    done = run("--json", *(part for name, value in given.items() for part in (f"--{name}", value)))
    expected = {name.replace("-", "_"): value for name, value in given.items()}
    expected["batch_window_s"] = expected.pop("batch_window")
    assert json.loads(done.stdout)["traffic"] == expected


def test_people_see_the_figures_and_the_advice():
    """The same figures as in JSON, in tables, and all notes below them."""
    planned = plan(Traffic(2000, reads_per_second=10))
    text = run("--likes-per-second", 2000, "--reads-per-second", 10).stdout
    words = " ".join(text.split())
    for value in (
        f"{planned.units.write:,.1f}",
        f"{planned.units_peak.write:,.1f}",
        f"{planned.average.staleness.p50:.2f}, {planned.average.staleness.p99:.2f}",
        f"{sum(planned.usd_stream.values()):,.2f}",
        f"{sum(planned.usd_transaction.values()):,.2f}",
        planned.capacity.cheaper,
        *(" ".join(note.split()) for note in advice(planned)),
    ):
        assert value in words


def test_a_staleness_without_end_is_told():
    """Where the aggregator does not keep up, there is no figure."""
    text = run("--likes-per-second", 10_000, "--batch-size", 10, "--skew", 0, "--likes-kept", 0).stdout
    assert "ever more" in text
    assert "does not keep up" in text


def test_b40_nonsense_is_an_expected_error():
    """The command line shows it as one line."""
    done = run("--likes-per-second", -1)
    assert isinstance(done.exception, TallyctlError)


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        ({"likes_per_second": 10}, "no pre-warming"),
        ({"likes_per_second": 10_000}, r"WriteUnitsPerSecond: 3\d{4}, ReadUnitsPerSecond: 12000"),
        ({"likes_per_second": 10}, "one partition carries it"),
        ({"likes_per_second": 10_000}, "POST#id#0 to POST#id#2"),
        ({"likes_per_second": 10_000}, r"of the 1,000 that an item takes"),
        ({"likes_per_second": 50_000, "posts": 1}, "which is more than an item takes"),
        ({"likes_per_second": 10_000}, "transactions would conflict"),
        ({"likes_per_second": 1, "posts": 1, "reads_per_second": 5000}, "cache them"),
        ({"likes_per_second": 10_000, "batch_size": 10, "skew": 0, "likes_kept": 0}, "does not keep up"),
        ({"likes_per_second": 10_000, "batch_window_s": 60, "likes_kept": 0}, "full before their window of 60 s ends"),
        ({"likes_per_second": 10, "post_bytes": 1000}, "costs 2 write units or more instead of 1"),
        ({"likes_per_second": 1000}, "raise its ThrottlingRateLimit"),
        ({"likes_per_second": 10_000}, "30,000 HTTP API requests a second"),
        ({"likes_per_second": 4000, "reads_per_second": 1000}, "15,000 HTTP API requests a second"),
        ({"likes_per_second": 100_000}, r"[\d,]+ calls of Lambda functions at a time"),
        ({"likes_per_second": 20_000}, r"[\d,]+ write units a second of one table"),
        ({"likes_per_second": 1, "reads_per_second": 50_000}, r"[\d,]+ read units a second of one table"),
    ],
)
def test_what_a_figure_means_is_said(traffic, said):
    """One sentence a matter."""
    assert re.search(said, advised(**traffic))


def test_what_is_no_matter_is_not_said():
    """A small network: three notes that all is well."""
    assert len(advice(plan(Traffic(10)))) == 3


def test_the_throttle_is_the_template_s():
    """Otherwise the advice would be about another template."""
    assert re.search(r"ThrottlingRateLimit: (\d+)", TEMPLATE.read_text())[1] == str(API_THROTTLE)
