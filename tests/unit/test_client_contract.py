"""The fake and moto answer the product's requests as DynamoDB does, or `contract.GAPS` says where not and why."""

import boto3
import pytest
from moto import mock_aws

from contract import CASES, GAPS, check, create_table, expect_gap
from fakes import FakeDynamoDb


@pytest.fixture(scope="module")
def moto():
    """Give a client of moto with the table."""
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        create_table(client)
        yield client


@pytest.fixture(scope="module")
def fake():
    """Give the client in memory."""
    return FakeDynamoDb()


@pytest.mark.parametrize("name", ["fake", "moto"])
@pytest.mark.parametrize("case", CASES)
def test_each_client_answers_as_dynamodb_does(request, name, case):
    """The answer, the item that comes with it, and the item that is there afterwards are DynamoDB's."""
    expect_gap(request, name, case)
    check(request.getfixturevalue(name), case)


def test_every_gap_is_of_a_client_and_a_case_that_are_there():
    """A gap of a case that was renamed would be forgotten."""
    assert {name for name, _ in GAPS} <= {"fake", "moto", "ministack"}
    assert {case for _, case in GAPS} <= set(CASES)
