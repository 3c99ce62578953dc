"""One small comparison, for the tests of its figures, of the command and of the page."""

import pytest

from tallyctl.comparison import series
from tallyctl.comparison.compare import compare
from tallyctl.comparison.series import ceiling


@pytest.fixture(scope="module")
def small():
    """Make all series and runs small, for the tests of what is made of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "_SERIES_OPERATIONS", 200)
        patch.setattr(series, "_CEILING_OPERATIONS", 200)
        patch.setattr("tallyctl.comparison.series.FAULT_OPERATIONS", 300)
        patch.setattr("tallyctl.comparison.compare.FAULT_OPERATIONS", 300)
        ceiling.cache_clear()
        yield
    ceiling.cache_clear()


@pytest.fixture(scope="module")
def vote(small):  # noqa: ARG001 - it makes the comparison small
    """Give the comparison of a small vote."""
    return compare("vote", operations=1000, rate=500.0)
