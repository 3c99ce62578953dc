"""The stand-in for the batching window that the embedded AWS ignores."""

import time
from types import SimpleNamespace

import pytest

from tallyctl import batching
from tallyctl.batching import batching_window
from tallyctl.errors import TallyctlError
from tallyctl.stack import Stack

STACK = Stack("s", {"AggregatorFunctionName": "aggregator"})


class FakeLambda:
    """Lambda with one function and its stream mappings."""

    def __init__(self, path="stream", windows=(0.02,)):
        self.path = path
        self.mappings = [{"UUID": f"m{n}", "MaximumBatchingWindowInSeconds": s} for n, s in enumerate(windows)]
        self.switched = []

    def get_function_configuration(self, **_):
        """Return the aggregator's settings."""
        return {"Environment": {"Variables": {"COUNTING_PATH": self.path}}}

    def list_event_source_mappings(self, **_):
        """Return its mappings."""
        return {"EventSourceMappings": self.mappings}

    def update_event_source_mapping(self, **change):
        """Note what was switched."""
        self.switched.append(change["Enabled"])


def place(fake, endpoint_url="http://127.0.0.1:1"):
    """A place whose Lambda is the fake."""
    return SimpleNamespace(endpoint_url=endpoint_url, session=SimpleNamespace(client=lambda _: fake))


@pytest.fixture(autouse=True)
def ministack(monkeypatch):
    """The emulator is MiniStack, and is quick to hand over."""
    monkeypatch.setattr(batching, "is_ministack", lambda _: True)
    monkeypatch.setattr(batching, "_HANDOVER_S", 0.01)


def test_the_mapping_is_off_and_on_in_turn_and_on_at_the_end():
    """Off for as long as its window, on for the handover, and so on; and on when the block ends."""
    fake = FakeLambda()
    with batching_window(place(fake), STACK):
        time.sleep(0.2)
    assert fake.switched[:4] == [False, True, False, True]
    assert fake.switched[-1] is True


def test_the_mapping_is_on_again_after_a_failure():
    """Otherwise nothing would be counted any more."""
    fake = FakeLambda()
    with pytest.raises(ZeroDivisionError), batching_window(place(fake), STACK):
        _ = 1 / 0
    assert fake.switched[-1] is True


@pytest.mark.parametrize("fake", [FakeLambda(path="transaction"), FakeLambda(windows=(0,))])
def test_a_mapping_that_should_be_off_or_has_no_window_is_left_alone(fake):
    """In transactions the stream must not count as well: that would count everything twice."""
    with batching_window(place(fake), STACK):
        time.sleep(0.05)
    assert fake.switched == []


def test_the_real_aws_is_left_alone():
    """It gathers by itself."""
    fake = FakeLambda()
    with batching_window(place(fake, endpoint_url=None), STACK):
        time.sleep(0.05)
    assert fake.switched == []


@pytest.mark.parametrize("windows", [(), (2, 2)])
def test_b40_a_function_without_one_mapping_is_one_clear_line(windows):
    """With two, each like would count twice; with none, not at all."""
    with (
        pytest.raises(TallyctlError, match=f"aggregator has {len(windows)} stream mappings"),
        batching_window(place(FakeLambda(windows=windows)), STACK),
    ):
        pass
