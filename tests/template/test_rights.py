"""Who may do what: one role a function with single actions on exact ARNs, and no open route."""

import pytest

ROUTES = {
    "PUT /posts/{postId}/likes/{userId}",
    "DELETE /posts/{postId}/likes/{userId}",
    "POST /posts",
    "GET /posts/{postId}",
    "GET /posts/{postId}/likes",
}
TABLE = ("Fn::GetAtt", "SocialTable", "Arn")
STREAM = ("Fn::GetAtt", "SocialTable", "StreamArn")
QUEUE = ("Fn::GetAtt", "FailedBatches", "Arn")
TRACING = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
AGGREGATOR_RIGHTS = TRACING | {
    ("dynamodb:UpdateItem", TABLE),
    ("dynamodb:DescribeStream", STREAM),
    ("dynamodb:GetRecords", STREAM),
    ("dynamodb:GetShardIterator", STREAM),
    ("dynamodb:ListStreams", STREAM),
    ("sqs:SendMessage", QUEUE),
    ("logs:CreateLogStream", ("Fn::GetAtt", "AggregatorLogs", "Arn")),
    ("logs:PutLogEvents", ("Fn::GetAtt", "AggregatorLogs", "Arn")),
}
API_RIGHTS = TRACING | {
    ("dynamodb:GetItem", TABLE),
    ("dynamodb:Query", TABLE),
    ("dynamodb:PutItem", TABLE),
    ("dynamodb:DeleteItem", TABLE),
    ("logs:CreateLogStream", ("Fn::GetAtt", "LikesApiLogs", "Arn")),
    ("logs:PutLogEvents", ("Fn::GetAtt", "LikesApiLogs", "Arn")),
}
WATCH = {"AuditSchedule": "rate(1 hour)"}
WATCH_RIGHTS = TRACING | {
    ("dynamodb:DescribeTable", TABLE),
    ("dynamodb:GetItem", TABLE),
    ("dynamodb:Query", TABLE),
    ("dynamodb:Scan", TABLE),
    ("dynamodb:DescribeStream", STREAM),
    ("dynamodb:GetRecords", STREAM),
    ("dynamodb:GetShardIterator", STREAM),
    ("dynamodb:ListStreams", STREAM),
    ("logs:CreateLogStream", ("Fn::GetAtt", "DriftWatchLogs", "Arn")),
    ("logs:PutLogEvents", ("Fn::GetAtt", "DriftWatchLogs", "Arn")),
}


def as_list(value):
    """A policy may hold one value or a list of them."""
    return value if isinstance(value, list) else [value]


def arn(resource):
    """A resource as something that a set can hold."""
    return ("Fn::GetAtt", *resource["Fn::GetAtt"]) if isinstance(resource, dict) else resource


def rights(role):
    """Every (action, resource) pair that a role allows; managed policies would hide some, so there are none."""
    assert "ManagedPolicyArns" not in role["Properties"]
    statements = [s for p in role["Properties"]["Policies"] for s in p["PolicyDocument"]["Statement"]]
    assert all(s["Effect"] == "Allow" and not s.keys() & {"NotAction", "NotResource"} for s in statements)
    return {
        (action, arn(resource))
        for s in statements
        for action in as_list(s["Action"])
        for resource in as_list(s["Resource"])
    }


@pytest.mark.parametrize("counting_path", ["stream", "transaction"])
def test_the_aggregator_may_only_count(deployed, counting_path):
    """On the table it may update items, and nothing more."""
    assert rights(deployed(CountingPath=counting_path)["AggregatorRole"]) == AGGREGATOR_RIGHTS


def test_the_api_may_not_update_on_the_stream_path(deployed):
    """There a tally belongs to the aggregator alone."""
    assert rights(deployed(CountingPath="stream")["LikesApiRole"]) == API_RIGHTS


def test_the_api_may_update_on_the_transactional_path(deployed):
    """There like and tally are written by one transaction of the API."""
    assert rights(deployed(CountingPath="transaction")["LikesApiRole"]) == API_RIGHTS | {("dynamodb:UpdateItem", TABLE)}


@pytest.mark.parametrize("counting_path", ["stream", "transaction"])
def test_the_drift_watch_may_read_and_not_write(deployed, counting_path):
    """It reports what drifts; who wants it mended asks for that. Of its rights none changes table, stream or queue."""
    allowed = rights(deployed(CountingPath=counting_path, **WATCH)["DriftWatchRole"])
    assert allowed == WATCH_RIGHTS
    reading = {"Describe", "Get", "Query", "Scan", "List"}
    on_data = {action.partition(":")[2] for action, _ in allowed if not action.startswith(("logs:", "xray:"))}
    assert not [action for action in on_data if not action.startswith(tuple(reading))]


def test_each_function_has_a_role_of_its_own_that_only_lambda_assumes(deployed):
    """A shared role would give each function the other's rights."""
    resources = deployed(**WATCH)
    functions = {i: r for i, r in resources.items() if r["Type"] == "AWS::Serverless::Function"}
    roles = {i: f["Properties"]["Role"]["Fn::GetAtt"][0] for i, f in functions.items()}
    assert roles == {
        "AggregatorFunction": "AggregatorRole",
        "LikesApiFunction": "LikesApiRole",
        "DriftWatchFunction": "DriftWatchRole",
    }
    assert set(roles.values()) == {i for i, r in resources.items() if r["Type"] == "AWS::IAM::Role"}
    for role in roles.values():
        (statement,) = resources[role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        assert statement == {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }


def test_nothing_else_grants_rights(template):
    """Policies of their own, or SAM's, would add to what the roles say."""
    resources = template["Resources"].values()
    policies = {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"}
    assert not [r for r in resources if r["Type"] in policies]
    functions = [r for r in resources if r["Type"] == "AWS::Serverless::Function"]
    assert not [f for f in functions if f["Properties"].keys() & {"Policies", "FunctionUrlConfig"}]


def test_the_routes_are_those_of_the_design_and_none_is_open(template):
    """Each route is explicit, signed, and served by the one integration."""
    routes = [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::ApiGatewayV2::Route"]
    assert sorted(r["RouteKey"] for r in routes) == sorted(ROUTES)
    for route in routes:
        assert route["AuthorizationType"] == "AWS_IAM"
        assert route["ApiId"] == {"Ref": "HttpApi"}
        assert route["Target"] == {"Fn::Sub": "integrations/${ApiIntegration}"}


def test_no_api_comes_in_by_another_way(template):
    """A quick-create target, an OpenAPI body or a SAM API would bring routes that are not listed."""
    api = template["Resources"]["HttpApi"]["Properties"]
    assert api["ProtocolType"] == "HTTP"
    assert not api.keys() & {"Body", "BodyS3Location", "Target", "RouteKey", "CredentialsArn"}
    types = {r["Type"] for r in template["Resources"].values()}
    assert not types & {"AWS::Serverless::Api", "AWS::Serverless::HttpApi", "AWS::Lambda::Url"}


def test_b38_no_browser_and_no_bypass(template):
    """No CORS for browsers, no authorizer to fool, no switch that lets a caller name the user unsigned.

    This product reads no JWT: every route is AWS_IAM, the caller is the app's own back end, and the path names the
    user. So there are no claims to be missing, and no preflight to be refused.
    """
    assert "CorsConfiguration" not in template["Resources"]["HttpApi"]["Properties"]
    types = {r["Type"] for r in template["Resources"].values()}
    assert "AWS::ApiGatewayV2::Authorizer" not in types
    assert template["Parameters"].keys() == {
        "Stage",
        "CountingPath",
        "Counters",
        "WindowSeconds",
        "BatchWindowSeconds",
        "AlarmTopicArn",
        "AuditSchedule",
    }


def test_only_this_api_may_call_the_api_function(deployed):
    """A permission without a source would let any API of any account call it."""
    permissions = [r["Properties"] for r in deployed().values() if r["Type"] == "AWS::Lambda::Permission"]
    assert permissions == [
        {
            "FunctionName": {"Ref": "LikesApiFunction"},
            "Action": "lambda:InvokeFunction",
            "Principal": "apigateway.amazonaws.com",
            "SourceArn": {"Fn::Sub": "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${HttpApi}/*"},
        }
    ]


def test_the_integration_speaks_payload_version_two(template):
    """The handler reads `routeKey` and `pathParameters` of version 2.0."""
    integration = template["Resources"]["ApiIntegration"]["Properties"]
    assert integration["IntegrationType"] == "AWS_PROXY"
    assert integration["PayloadFormatVersion"] == "2.0"
    assert "${LikesApiFunction.Arn}" in integration["IntegrationUri"]["Fn::Sub"]


def test_the_stage_is_the_default_one_throttled_and_logged(template):
    """The URL has no stage in it, a flood is refused, and each call leaves a line without user ids in it."""
    stage = template["Resources"]["ApiStage"]["Properties"]
    assert stage["StageName"] == "$default"
    assert stage["AutoDeploy"] is True
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] > 0
    assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] > 0
    assert stage["AccessLogSettings"]["DestinationArn"] == {"Fn::GetAtt": ["ApiAccessLogs", "Arn"]}
    assert "$context.routeKey" in stage["AccessLogSettings"]["Format"]
    assert "$context.path" not in stage["AccessLogSettings"]["Format"]
