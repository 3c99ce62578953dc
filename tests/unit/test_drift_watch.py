"""The drift watch as Lambda loads it: real boto3 clients, log lines, metrics, a limit of time, and nothing written."""

import functools
import importlib
import json
import logging
import sys
import time

import boto3
import pytest
from moto import mock_aws

from tallystream.auditor import Auditor
from tallystream.settings import SettingsError

REGION = "eu-west-1"
TABLE = "Social"
READS = {"DescribeTable", "Scan", "GetItem", "Query", "DescribeStream", "GetShardIterator", "GetRecords"}
METRICS = {
    "TallyDrift",
    "DriftingParents",
    "AuditedParents",
    "UnjudgedParents",
    "UnjudgedPercent",
    "OrphanedChildren",
}
NOTHING = {"drifting": 0, "drift": 0, "unjudged": 0, "orphans": 0, "waiting": 0}


class Clock:
    """The module `time`, of which only sleeping passes any."""

    def __init__(self):
        self.at = time.time()

    def time(self):
        """Return epoch seconds."""
        return self.at

    monotonic = time

    def sleep(self, seconds):
        """Let time pass."""
        self.at += seconds


class Context:
    """What the handler asks Lambda's context for."""

    def __init__(self, clock, seconds):
        self._clock, self._end = clock, clock.at + seconds

    def get_remaining_time_in_millis(self):
        """Return what is left."""
        return int((self._end - self._clock.at) * 1000)


@pytest.fixture
def environment(monkeypatch):
    """Set the environment as the template does, and nothing of the developer's own."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_PROFILE", "COUNTERS", "COUNTING_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("TABLE_NAME", TABLE)
    monkeypatch.setenv("RECORD_AGE_SECONDS", "21600")
    monkeypatch.setenv("WINDOW_SECONDS", "60")
    # moto knows no endpoint of an account's own.
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    return monkeypatch


@pytest.fixture
def clock():
    """Give a clock that does not run by itself."""
    return Clock()


@pytest.fixture
def load(environment, clock):
    """Give a function that loads the module afresh, as a new execution environment does, with the clock in it.

    The first call is the test's own: the logger keeps standard output as it is then.
    """
    loaded = []

    @functools.cache
    def load():
        # Powertools keeps a logger's handler, and with it the standard output of an earlier test.
        logging.Logger.manager.loggerDict.pop("drift-watch", None)
        environment.delitem(sys.modules, "drift_watch", raising=False)
        loaded.append(importlib.import_module("drift_watch"))
        environment.setattr(loaded[-1], "time", clock)
        return loaded[-1]

    yield load
    for module in loaded:
        module._pool.shutdown()
    sys.modules.pop("drift_watch", None)


@pytest.fixture
def client():
    """Give a client of moto, in which the table is, without a stream yet."""
    with mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        keys = ("PK", "HASH"), ("SK", "RANGE")
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
        )
        yield client


@pytest.fixture
def watch(client, load, clock):
    """Give the handler of a fresh module in front of `client`'s table, with 15 minutes; it must not write."""
    del client

    def watch(seconds=900):
        module, operations = load(), set()
        for of in (module._dynamodb, module._streams):
            of.meta.events.register("before-call", lambda model, **_: operations.add(model.name))
        figures = module.handler({"source": "aws.events"}, Context(clock, seconds))
        assert operations <= READS
        return figures

    return watch


def put(client, post, likes, tally=None, *, with_post=True):
    """Store a post with so many likes, and a tally that was right a day ago unless another one is given."""
    if with_post:
        value = {"N": str(likes if tally is None else tally)} if type(tally) is not str else {"S": tally}
        item = {"PK": {"S": f"POST#{post}"}, "SK": {"S": "META"}, "likeTally": value}
        client.put_item(TableName=TABLE, Item=item)
    for user in range(likes):
        client.put_item(TableName=TABLE, Item={"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#u{user}"}})


def enable_stream(client):
    """Let the table have a stream, which knows nothing of what was written before: as a day later."""
    enabled = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    client.update_table(TableName=TABLE, StreamSpecification=enabled)


def printed(capsys):
    """Return what went to standard output: the findings, the line of the run, the metrics."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (run,) = [line for line in lines if line.get("message") == "audit"]
    (metrics,) = [line for line in lines if "_aws" in line]
    findings = [line for line in lines if line.get("level") == "WARNING"]
    assert len(findings) + 2 == len(lines)
    return findings, run, metrics


def test_a_table_without_drift_is_reported_so(client, watch, capsys):
    """One line and one set of metrics a run, which say the same."""
    put(client, "p1", 3)
    put(client, "p2", 0)
    enable_stream(client)
    figures = watch()
    assert {**figures, "parents": 2, "children": 3, "audited": 2, **NOTHING} == figures
    findings, run, metrics = printed(capsys)
    assert findings == []
    assert {name: run[name] for name in figures} == figures
    (directive,) = metrics["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("Tallystream", [["service"]])
    assert metrics["service"] == "drift-watch"
    assert {declared["Name"] for declared in directive["Metrics"]} == METRICS
    assert {name: metrics[name] for name in METRICS} == {name: [0.0] for name in METRICS} | {"AuditedParents": [2.0]}


def test_each_tally_that_drifts_is_a_line_and_the_metric_is_their_sum(client, watch, capsys):
    """Too high and too low do not cancel out."""
    put(client, "p1", 3)
    put(client, "p2", 2, tally=5)
    put(client, "p3", 2, tally=1)
    enable_stream(client)
    before = client.scan(TableName=TABLE)["Items"]
    figures = watch()
    assert {**figures, "audited": 3, **NOTHING, "drifting": 2, "drift": 4} == figures
    findings, _, metrics = printed(capsys)
    names = ("message", "parent", "attribute", "tally", "truth", "drift")
    assert sorted([finding[name] for name in names] for finding in findings) == [
        ["tally drifts", ["POST#p2", "META"], "likeTally", 5, 2, 3],
        ["tally drifts", ["POST#p3", "META"], "likeTally", 1, 2, -1],
    ]
    assert (metrics["TallyDrift"], metrics["DriftingParents"]) == ([4.0], [2.0])
    assert client.scan(TableName=TABLE)["Items"] == before


def test_likes_that_the_stream_still_brings_are_no_drift(client, watch):
    """They are waiting: the tally as of its marks is right."""
    enable_stream(client)
    put(client, "p1", 2, tally=0)
    figures = watch()
    assert {**figures, "parents": 1, "audited": 1, **NOTHING, "waiting": 2} == figures


def test_a_like_without_its_post_is_an_orphan(client, watch, capsys):
    """It is told, and it is nobody's drift."""
    put(client, "gone", 2, with_post=False)
    put(client, "p1", 1)
    enable_stream(client)
    figures = watch()
    assert {**figures, "parents": 1, "audited": 1, **NOTHING, "orphans": 2} == figures
    (finding,), _, metrics = printed(capsys)
    assert (finding["parent"], finding["children"]) == (["POST#gone", "META"], 2)
    assert metrics["OrphanedChildren"] == [2.0]


def test_a_tally_that_is_text_is_unjudged_and_not_audited(client, watch, capsys):
    """The line says why."""
    put(client, "p1", 1, tally="many")
    put(client, "p2", 1)
    enable_stream(client)
    figures = watch()
    assert {**figures, "parents": 2, "audited": 1, **NOTHING, "unjudged": 1} == figures
    (finding,), _, metrics = printed(capsys)
    assert finding["message"] == "unjudged"
    assert "likeTally is no integer" in finding["reason"]
    assert (metrics["UnjudgedParents"], metrics["AuditedParents"]) == ([1.0], [1.0])
    assert metrics["UnjudgedPercent"] == [50.0]


@pytest.mark.parametrize(("tally", "drift"), [(3, 0), (4, 1)])
def test_on_the_transaction_path_the_children_are_the_truth(client, clock, environment, watch, tally, drift):
    """There are no marks there, and what the stream brings is counted already."""
    environment.setenv("COUNTING_PATH", "transaction")
    enable_stream(client)
    put(client, "p1", 3, tally)
    clock.sleep(60)
    figures = watch()
    assert {**figures, "audited": 1, **NOTHING, "drifting": drift, "drift": drift} == figures


@pytest.mark.parametrize(("window", "named"), [("60", True), ("0", False)])
def test_marks_name_shards_only_where_the_mapping_has_a_window(client, environment, load, watch, window, named):
    """Without one, and with several open shards, nothing could tell whose mark it is."""
    environment.setenv("WINDOW_SECONDS", window)
    put(client, "p1", 1)
    enable_stream(client)
    asked = []

    def auditor(*ports, names_shards, **others):
        asked.append(names_shards)
        return Auditor(*ports, names_shards=names_shards, **others)

    environment.setattr(load(), "Auditor", auditor)
    watch()
    assert asked == [named]


def test_the_configured_rules_are_audited(client, environment, watch):
    """Each attribute that a rule counts on, and no other."""
    environment.setenv("COUNTERS", '[{"child": "LIKE#USER#", "parent": "META", "attribute": "hearts"}]')
    put(client, "p1", 2, tally=9)
    enable_stream(client)
    assert watch()["drift"] == 2


def test_an_empty_table_takes_no_time(client, watch, clock):
    """The stream is not read for nobody."""
    enable_stream(client)
    began, figures = clock.at, watch()
    assert {**figures, "parents": 0, "audited": 0, **NOTHING} == figures
    assert clock.at == began


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0, {"unjudged": 2, "unjudged_percent": 100, "drifting": 0, "audited": 0}, id="no time at all"),
        pytest.param(
            61, {"unjudged": 2, "unjudged_percent": 100, "drifting": 0, "audited": 0}, id="until the stream is read"
        ),
        pytest.param(
            66,
            {"unjudged": 1, "unjudged_percent": 50, "drifting": 0, "audited": 1},
            id="until the suspect is read again",
        ),
        pytest.param(90, {"unjudged": 0, "unjudged_percent": 0, "drifting": 1, "audited": 2}, id="enough"),
    ],
)
def test_what_is_not_judged_in_time_is_reported_so(client, watch, clock, capsys, seconds, expected):
    """The run ends by itself, before Lambda ends it, and what could not be judged is no drift and not audited."""
    put(client, "p1", 3, tally=7)
    put(client, "p2", 1)
    enable_stream(client)
    end = clock.at + seconds
    figures = watch(seconds)
    assert {name: figures[name] for name in expected} == expected
    findings, _, _ = printed(capsys)
    reasons = [finding["reason"] for finding in findings if finding["message"] == "unjudged"]
    assert reasons == ["there was no time left to read it, or the stream to its end"] * expected["unjudged"]
    assert not seconds or clock.at < end - 50


def test_a_parent_whose_children_take_too_long_is_given_up(client, load, clock, capsys):
    """Reading millions of children must not take the run past its end: here, each page takes twenty seconds."""
    put(client, "p1", 3, tally=7)
    enable_stream(client)
    module, end = load(), clock.at + 80
    events = module._dynamodb.meta.events
    events.register("before-parameter-build.dynamodb.Query", lambda params, **_: params.update(Limit=1))
    events.register("before-call.dynamodb.Query", lambda **_: clock.sleep(20))
    figures = module.handler({}, Context(clock, 80))
    assert clock.at < end - 50
    assert {**figures, "audited": 0, **NOTHING, "unjudged": 1} == figures
    (finding,), _, _ = printed(capsys)
    assert "no time left" in finding["reason"]


@pytest.mark.parametrize("limit", [("MOST_PARENTS", 3), ("MOST_READ_UNITS", 3.0), ("SAMPLING_MS", 3000)])
def test_the_sample_ends_at_each_of_its_limits(client, environment, load, watch, clock, limit):
    """So many parents, so many read units or so much time are enough, however large the table is."""
    for number in range(20):
        put(client, f"p{number}", 0)
    enable_stream(client)
    environment.setattr(load(), *limit)
    environment.setattr(load(), "segments_of", lambda _: 20)
    load()._dynamodb.meta.events.register("before-call.dynamodb.Scan", lambda **_: clock.sleep(1))
    assert 1 <= watch()["parents"] <= 10


def test_a_table_without_a_stream_is_an_error(client, watch, load):
    """Its likes are counted by nobody, and without a stream nothing can be judged exactly."""
    put(client, "p1", 1)
    with pytest.raises(load().NoStream, match="Social has no stream"):
        watch()


def test_errors_leave_the_handler(client, watch):
    """A missing table or missing rights are raised, for Lambda and the alarm to see."""
    client.delete_table(TableName=TABLE)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        watch()


def test_the_figures_of_one_run_do_not_leak_into_the_next(client, watch, capsys):
    """Each run has its own sample, report and metrics."""
    put(client, "p1", 1, tally=3)
    enable_stream(client)
    assert [watch()["drift"], watch()["drift"]] == [2, 2]
    metrics = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if "_aws" in line]
    assert [one["TallyDrift"] for one in metrics] == [[2.0], [2.0]]


def test_the_handler_works_without_a_context(client, load):
    """Called by hand, it takes the 15 minutes that Lambda would give it."""
    put(client, "p1", 1, tally=3)
    enable_stream(client)
    assert load().handler({}, None)["drift"] == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("RECORD_AGE_SECONDS", None, "RECORD_AGE_SECONDS or WINDOW_SECONDS is missing"),
        ("WINDOW_SECONDS", None, "RECORD_AGE_SECONDS or WINDOW_SECONDS is missing"),
        ("WINDOW_SECONDS", "-1", "WINDOW_SECONDS must be 0 to 900"),
        ("RECORD_AGE_SECONDS", "-1", "RECORD_AGE_SECONDS must be 60 to 86400"),
        ("TABLE_NAME", None, "TABLE_NAME must be the name of a DynamoDB table"),
    ],
)
def test_wrong_settings_fail_at_start_up(environment, load, name, value, said):
    """The module cannot be loaded, and the message says which variable to mend."""
    if value is None:
        environment.delenv(name)
    else:
        environment.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        load()
    assert said in str(refused.value)
