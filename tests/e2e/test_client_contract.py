"""The embedded AWS answers the product's requests as DynamoDB does, or `contract.GAPS` says where not and why."""

import boto3
import pytest

from contract import CASES, check, create_table, expect_gap

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def ministack(port):
    """A client of the embedded AWS with the table."""
    client = boto3.client(
        "dynamodb",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    create_table(client)
    return client


@pytest.mark.parametrize("case", CASES)
def test_the_embedded_aws_answers_as_dynamodb_does(request, ministack, case):
    """The answer, the item that comes with it, and the item that is there afterwards are DynamoDB's."""
    expect_gap(request, "ministack", case)
    check(ministack, case)
