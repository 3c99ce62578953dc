"""Builders for tests of the HTTP API: events as API Gateway sends them, a table, and errors that moto cannot make."""

import contextlib
import json
from types import SimpleNamespace

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

REGION = "eu-west-1"
TABLE = "Social"


def http_event(route_key, *, path_parameters=None, body=None, query=None, **changes):
    """Return an HTTP API event of payload format 2.0; a `body` that is no string is sent as its JSON.

    API Gateway leaves out `pathParameters`, `queryStringParameters` and `body` where there are none.
    """
    method, _, template = route_key.partition(" ")
    path = template.format_map(path_parameters or {}) if path_parameters else template
    event = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "host": "api1.execute-api.eu-west-1.amazonaws.com"},
        "requestContext": {
            "accountId": "111122223333",
            "apiId": "api1",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": "request-1",
            "routeKey": route_key,
            "stage": "$default",
            "timeEpoch": 1_767_225_600_000,
        },
        "isBase64Encoded": False,
    }
    if path_parameters is not None:
        event["pathParameters"] = path_parameters
    if query is not None:
        event["queryStringParameters"] = query
    if body is not None:
        event["body"] = body if isinstance(body, str) else json.dumps(body)
    return event | changes


@contextlib.contextmanager
def social_table():
    """Give a client of moto's DynamoDB in which the table of the template is."""
    # One session for all tests: a new one reads the whole model of DynamoDB again, 0.2 s for each client.
    with mock_aws(config={"core": {"reset_boto3_session": False}}):
        client = boto3.client("dynamodb", region_name=REGION)
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "PK", "AttributeType": "S"},
                {"AttributeName": "SK", "AttributeType": "S"},
            ],
            KeySchema=[
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
        )
        yield client


def item(client, partition_key, sort_key):
    """Return an item in DynamoDB's notation, or None."""
    key = {"PK": {"S": partition_key}, "SK": {"S": sort_key}}
    return client.get_item(TableName=TABLE, Key=key).get("Item")


def items(client):
    """Return the (PK, SK) of every item in the table, sorted."""
    return sorted((found["PK"]["S"], found["SK"]["S"]) for found in client.scan(TableName=TABLE)["Items"])


def client_error(code, *, status=400, **members):
    """Return the error that boto3 raises for this code of DynamoDB."""
    response = {
        "Error": {"Code": code, "Message": "planted"},
        "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": 0},
        **members,
    }
    return ClientError(response, "planted")


def cancelled(*codes):
    """Return the error of a transaction that was cancelled for these reasons, one for each item."""
    return client_error("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


def plant(client, operation, *errors):
    """Let the next calls of an operation fail with these errors before they reach the table; later ones go through.

    Returns the list to which the parameters of every call are added.
    """
    calls, left = [], list(errors)

    def record(params, **_):
        calls.append(params)

    def fail(**_):
        if not left:
            return None
        error = left.pop(0)
        if not isinstance(error, ClientError):
            raise error
        # What botocore makes of an error's answer: it raises the exception class of the code.
        return SimpleNamespace(status_code=400), error.response

    client.meta.events.register(f"provide-client-params.dynamodb.{operation}", record)
    client.meta.events.register(f"before-call.dynamodb.{operation}", fail)
    return calls


def lose_first_answer(client, operation):
    """Let boto3 send an operation's first request twice, as it does if the answer to it is lost on the way."""
    client.meta.events.register_first(
        f"needs-retry.dynamodb.{operation}", lambda attempts, **_: 0 if attempts == 1 else None
    )
