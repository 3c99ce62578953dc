"""The cross-check against an emulator's consumed capacity; here moto stands in, which is known to differ."""

import boto3
import pytest
from moto import mock_aws

from tallyctl.comparison.crosscheck import crosscheck
from tallyctl.comparison.paths import PATHS
from tallyctl.errors import TallyctlError
from tallyctl.stack import REAL_AWS, Place, connect


@pytest.fixture(scope="module")
def moto():
    """Give the cross-check against moto, and the tables that it left."""
    with mock_aws():
        session = boto3.Session("AKIA", "secret", region_name="us-east-1")
        checked = crosscheck(Place("http://127.0.0.1:1", "us-east-1", session), 1)
        yield checked, session.client("dynamodb").list_tables()["TableNames"]


def test_every_difference_is_listed(moto):
    """Moto gives half a unit for an UpdateItem and none for a transaction: both are found, on the paths that send them.

    What is the same and what differs adds up to all that was sent.
    """
    checked, _ = moto
    found = {(difference.operation, difference.ours, difference.emulator) for difference in checked.differences}
    assert ("UpdateItem", "1", "0.5") in found
    assert {difference.path for difference in checked.differences} <= set(PATHS)
    assert checked.requests == checked.same + sum(difference.requests for difference in checked.differences)


def test_refusals_are_compared_by_their_error(moto):
    """Every like is sent twice, so that many requests are refused; both sides say so."""
    checked, _ = moto
    assert checked.uncharged > 100


def test_the_tables_are_removed(moto):
    """What was made for the purpose is gone afterwards."""
    _, left = moto
    assert left == []


def test_the_figures_keep_what_was_measured_apart(moto):
    """Times of this machine are in no seeded figure."""
    figures = moto[0].figures()
    assert set(figures) == {"requests", "same", "uncharged", "differences", "measured"}
    times = figures["measured"]["milliseconds_p50"]
    assert {"PutItem", "UpdateItem", "TransactWriteItems"} <= set(times)
    assert all(0 < milliseconds < 10_000 for milliseconds in times.values())


def test_the_real_aws_is_refused():
    """It would cost money, and the rules are its own."""
    with pytest.raises(TallyctlError, match="needs an emulator"):
        crosscheck(connect(REAL_AWS, "us-east-1"), 1)
