"""Table, queue, functions, logs, alarms, dashboard and outputs, and the order in which they come to be."""

import graphlib
import json
import re
from pathlib import Path

import pytest

from tallystream.batches import Batches
from tallystream.rules import Rules

ROOT = Path(__file__).parents[2]
COMMON_ENVIRONMENT = {
    "TABLE_NAME": {"Ref": "SocialTable"},
    "COUNTERS": '[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"}]',
    "COUNTING_PATH": "stream",
    "POWERTOOLS_METRICS_NAMESPACE": "Tallystream",
    "POWERTOOLS_LOG_LEVEL": "INFO",
}
FUNCTIONS = {
    "AggregatorFunction": ("aggregator", "AggregatorLogs"),
    "LikesApiFunction": ("likes_api", "LikesApiLogs"),
    "DriftWatchFunction": ("drift_watch", "DriftWatchLogs"),
}
WATCH = {"AuditSchedule": "rate(1 hour)"}
ALARMS = {
    ("AWS/Lambda", "IteratorAge", "AggregatorFunction"),
    ("AWS/Lambda", "Errors", "AggregatorFunction"),
    ("AWS/Lambda", "Errors", "LikesApiFunction"),
    ("AWS/Lambda", "Throttles", "AggregatorFunction"),
    ("AWS/Lambda", "Throttles", "LikesApiFunction"),
    ("AWS/Lambda", "DroppedEventCount", "StreamMapping"),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "FailedBatches"),
    ("Tallystream", "Failed", "${AWS::StackName}-aggregator"),
    ("Tallystream", "Negative", "${AWS::StackName}-aggregator"),
}
WATCH_ALARMS = {
    ("Tallystream", "TallyDrift", "${AWS::StackName}-drift-watch"),
    ("Tallystream", "UnjudgedPercent", "${AWS::StackName}-drift-watch"),
    ("AWS/Lambda", "Errors", "DriftWatchFunction"),
}


def references(value):
    """Names that a value refers to by Ref, Fn::GetAtt or Fn::Sub."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    match list(value.items()):
        case [("Ref", name)]:
            return {name}
        case [("Fn::GetAtt", [name, *_])]:
            return {name}
        case [("Fn::Sub", text)]:
            return set(re.findall(r"\$\{(\w+)", text if isinstance(text, str) else text[0]))
    return set().union(*map(references, value.values()))


@pytest.fixture
def graph(deployed):
    """For each resource the resources that must exist before it, on the stream path and with a drift watch."""
    resources = deployed(**WATCH)
    needed = {}
    for name, resource in resources.items():
        first = resource.get("DependsOn", [])
        first = {first} if isinstance(first, str) else set(first)
        needed[name] = (references(resource["Properties"]) | first) & resources.keys()
    return needed


def before(graph, name):
    """Everything that must exist before a resource, directly or not."""
    return graph[name].union(*(before(graph, other) for other in graph[name]))


def test_b39_no_resource_waits_for_itself(graph):
    """A circular reference is found by CloudFormation only when it deploys."""
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert order.index("SocialTable") < order.index("StreamMapping")


def test_b39_the_rights_come_before_the_mapping_that_uses_them(graph):
    """Lambda checks the stream and queue rights while it creates the mapping."""
    assert "AggregatorRole" in graph["StreamMapping"]
    assert {"SocialTable", "FailedBatches"} <= before(graph, "AggregatorRole")


def test_no_function_can_log_before_its_log_group_exists(graph):
    """Lambda would make a group of its own, kept for ever."""
    assert "AggregatorLogs" in before(graph, "AggregatorFunction")
    assert "LikesApiLogs" in before(graph, "LikesApiFunction")
    assert "DriftWatchLogs" in before(graph, "DriftWatchFunction")


def test_explicit_routes_come_before_the_first_function(template):
    """`sam local start-api` takes the first of the two kinds, and finds no route when it is a function."""
    kinds = [r["Type"] for r in template["Resources"].values()]
    assert kinds.index("AWS::ApiGatewayV2::Api") < kinds.index("AWS::Serverless::Function")


def test_the_table_is_the_one_of_the_design(deployed):
    """Keys, billing, stream, recovery and encryption."""
    properties = deployed()["SocialTable"]["Properties"]
    assert properties["KeySchema"] == [
        {"AttributeName": "PK", "KeyType": "HASH"},
        {"AttributeName": "SK", "KeyType": "RANGE"},
    ]
    assert {a["AttributeName"]: a["AttributeType"] for a in properties["AttributeDefinitions"]} == {
        "PK": "S",
        "SK": "S",
    }
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["StreamSpecification"] == {"StreamViewType": "KEYS_ONLY"}
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["SSESpecification"] == {"SSEEnabled": True}


@pytest.mark.parametrize(("stage", "policy", "protected"), [("dev", "Delete", False), ("prod", "Retain", True)])
def test_the_table_outlives_its_stack_outside_dev(template, deployed, stage, policy, protected):
    """Only AWS::LanguageExtensions, before the SAM transform, lets the policy depend on the stage."""
    table = deployed(Stage=stage)["SocialTable"]
    assert table["DeletionPolicy"] == policy
    assert table["UpdateReplacePolicy"] == policy
    assert table["Properties"]["DeletionProtectionEnabled"] is protected
    assert template["Transform"] == ["AWS::LanguageExtensions", "AWS::Serverless-2016-10-31"]


def test_failed_batches_are_encrypted_and_kept_as_long_as_sqs_can(deployed):
    """Two weeks to look at a failure, unreadable at rest."""
    queue = deployed()["FailedBatches"]
    assert queue["Type"] == "AWS::SQS::Queue"
    assert queue["Properties"]["SqsManagedSseEnabled"] is True
    assert queue["Properties"]["MessageRetentionPeriod"] == 14 * 24 * 3600


@pytest.mark.parametrize(("function", "module", "logs"), [(f, *rest) for f, rest in FUNCTIONS.items()])
def test_each_function_runs_as_designed(deployed, function, module, logs):
    """Runtime, processor, bundle, tracing and structured logs to a group of its own."""
    resource = deployed(**WATCH)[function]
    properties = resource["Properties"]
    assert properties["Runtime"] == "python3.13"
    assert properties["Architectures"] == ["arm64"]
    assert properties["CodeUri"] == "src/"
    assert properties["Handler"] == f"{module}.handler"
    assert properties["Tracing"] == "Active"
    assert properties["LoggingConfig"]["LogFormat"] == "JSON"
    assert properties["LoggingConfig"]["LogGroup"] == {"Ref": logs}
    assert resource["Metadata"] == {"BuildMethod": "python-uv"}


@pytest.mark.parametrize("module", [module for module, _ in FUNCTIONS.values()])
def test_b39_each_handler_is_in_the_bundle(module):
    """A handler beside the code folder is not deployed."""
    assert (ROOT / "src" / f"{module}.py").is_file()


def test_the_aggregator_has_time_and_the_api_stays_within_its_gateway(deployed):
    """The aggregator retries for most of a minute; API Gateway gives up after 30 seconds."""
    resources = deployed()
    assert resources["AggregatorFunction"]["Properties"]["Timeout"] == 60
    assert resources["AggregatorFunction"]["Properties"]["MemorySize"] == 1769
    assert resources["LikesApiFunction"]["Properties"]["Timeout"] < 30


def test_the_environment_of_the_aggregator(deployed):
    """The names are a contract with the code."""
    environment = deployed()["AggregatorFunction"]["Properties"]["Environment"]["Variables"]
    assert environment == COMMON_ENVIRONMENT | {
        "POWERTOOLS_SERVICE_NAME": {"Fn::Sub": "${AWS::StackName}-aggregator"},
        "FAILED_BATCHES_URL": {"Ref": "FailedBatches"},
    }


def test_the_environment_of_the_api(deployed):
    """The same table, rules and counting path as the aggregator has, and no queue."""
    environment = deployed()["LikesApiFunction"]["Properties"]["Environment"]["Variables"]
    assert environment == COMMON_ENVIRONMENT | {"POWERTOOLS_SERVICE_NAME": {"Fn::Sub": "${AWS::StackName}-likes-api"}}


def test_parameters_reach_the_functions(deployed):
    """All functions learn the path and the rules from the same two parameters."""
    rules = '[{"child": "VOTE#", "parent": "META", "attribute": "votes"}]'
    resources = deployed(CountingPath="transaction", Counters=rules, **WATCH)
    for function in FUNCTIONS:
        environment = resources[function]["Properties"]["Environment"]["Variables"]
        assert environment["COUNTING_PATH"] == "transaction"
        assert environment["COUNTERS"] == rules


def test_each_parameter_says_what_it_is_and_what_it_allows(template):
    """Nobody has to read the template to deploy it, and a typo is refused before anything is made."""
    for parameter in template["Parameters"].values():
        assert len(parameter["Description"]) > 30
        assert parameter.keys() & {"AllowedValues", "AllowedPattern"}
        assert "Default" in parameter


def test_the_pattern_of_counters_takes_the_default_and_refuses_what_is_no_list(template):
    """Anything that is not a list of objects on one line is refused at deployment."""
    parameter = template["Parameters"]["Counters"]
    pattern = re.compile(parameter["AllowedPattern"])
    assert pattern.fullmatch(parameter["Default"])
    assert json.loads(parameter["Default"])
    assert not [bad for bad in ("", "[]", "{}", "LIKE#USER#", '["a"]') if pattern.fullmatch(bad)]


@pytest.mark.parametrize(("stage", "days"), [("dev", 14), ("prod", 90)])
def test_every_log_group_ends_with_its_stage(deployed, stage, days):
    """Logs without retention are kept, and paid, for ever."""
    groups = [r for r in deployed(Stage=stage, **WATCH).values() if r["Type"] == "AWS::Logs::LogGroup"]
    assert [g["Properties"]["RetentionInDays"] for g in groups] == [days] * 4


@pytest.mark.parametrize(
    ("parameters", "expected"), [({}, ALARMS), (WATCH, ALARMS | WATCH_ALARMS)], ids=["without the watch", "with it"]
)
def test_the_alarms_watch_what_can_go_wrong(deployed, parameters, expected):
    """Lag, errors and throttles of each function, the failure queue, dropped and failed records, wrong tallies."""
    alarms = [r["Properties"] for r in deployed(**parameters).values() if r["Type"] == "AWS::CloudWatch::Alarm"]
    watched = set()
    for alarm in alarms:
        (dimension,) = alarm["Dimensions"]
        value = dimension["Value"]
        source = {value["Fn::Sub"]} if "Fn::Sub" in value else references(value)
        watched.add((alarm["Namespace"], alarm["MetricName"], *source))
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["AlarmDescription"]
        assert "AlarmActions" not in alarm
    assert watched == expected


def test_alarms_notify_the_topic_that_is_given(deployed):
    """One parameter connects every alarm."""
    topic = "arn:aws:sns:us-east-1:111122223333:alarms"
    resources = deployed(AlarmTopicArn=topic, **WATCH).values()
    alarms = [r["Properties"] for r in resources if r["Type"] == "AWS::CloudWatch::Alarm"]
    assert len(alarms) == len(ALARMS | WATCH_ALARMS)
    assert all(alarm["AlarmActions"] == [topic] for alarm in alarms)


@pytest.mark.parametrize("parameters", [{}, WATCH], ids=["without the watch", "with it"])
def test_the_dashboard_is_json_and_shows_every_alarm(dashboard, deployed, parameters):
    """A body that is not JSON fails the deployment, and an alarm that is not shown may have no other place."""
    widgets = dashboard(**parameters)
    alarms = {name for name, r in deployed(**parameters).items() if r["Type"] == "AWS::CloudWatch::Alarm"}
    (shown,) = [w["properties"]["alarms"] for w in widgets if w["type"] == "alarm"]
    assert {name.removeprefix("${").removesuffix(".Arn}") for name in shown} == alarms
    assert [w for w in widgets if w["type"] == "metric"]


def test_alarms_and_dashboard_name_only_metrics_that_the_aggregator_emits(template, dashboard, values):
    """An alarm on a metric that nobody emits stays silent, whatever happens."""
    batches = Batches(
        table=None,
        failures=None,
        rules=Rules.parse(template["Parameters"]["Counters"]["Default"]),
        concurrently=map,
        now=float,
        sleep=float,
        jitter=float,
    )
    emitted = {name.capitalize() for name in batches.apply({"Records": []}, lambda: 60_000).figures}
    shown = {m[1] for key, metrics in values(dashboard()) if key == "metrics" for m in metrics if m[0] == "Tallystream"}
    alarms = {name for namespace, name, _ in ALARMS if namespace == "Tallystream"}
    assert shown | alarms <= emitted
    assert emitted == shown


@pytest.mark.parametrize("parameters", [{}, WATCH], ids=["without the watch", "with it"])
def test_the_widgets_of_the_dashboard_do_not_overlap(dashboard, parameters):
    """The grid is 24 wide; CloudWatch moves what overlaps."""
    cells = [
        (x, y)
        for w in dashboard(**parameters)
        for x in range(w["x"], w["x"] + w["width"])
        for y in range(w["y"], w["y"] + w["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_outputs_are_those_of_the_contract(template):
    """Tools find everything of a stack by these four names."""
    assert {name: output["Value"] for name, output in template["Outputs"].items()} == {
        "TableName": {"Ref": "SocialTable"},
        "ApiUrl": {"Fn::GetAtt": ["HttpApi", "ApiEndpoint"]},
        "AggregatorFunctionName": {"Ref": "AggregatorFunction"},
        "FailedBatchesUrl": {"Ref": "FailedBatches"},
    }
