"""A stand-in for `MaximumBatchingWindowInSeconds`, which the embedded AWS stores and then ignores.

Lambda gathers stream records for that long before it calls the function, and this gathering is what makes counting by
the stream cheap. MiniStack instead delivers each record at once, mostly alone. So while a demo or a measurement runs
there, the mapping is switched off for as long as its own batching window says, switched on until the function has
been given what gathered, and off again: with its stream position kept, as on AWS.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallyctl.emulator import is_ministack
from tallyctl.errors import TallyctlError
from tallyctl.stack import Place, Stack, counting_path

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_HANDOVER_S = 0.15
"""How long the mapping stays on: the emulator looks at the stream every 50 ms while records come in."""


@contextlib.contextmanager
def batching_window(place: Place, stack: Stack) -> Iterator[None]:
    """Have the stack's stream mapping gather records as Lambda does, for as long as the block runs.

    Does nothing on the real AWS or on LocalStack, or where likes are counted in transactions and the mapping is off.
    After it, the mapping is on.

    Raises:
        TallyctlError: the mapping could not be switched on again; nothing would be counted until it is.
    """
    # Not whether the mapping says that it is on: MiniStack says so even of one that was deployed switched off.
    if place.endpoint_url is None or not is_ministack(place.endpoint_url) or counting_path(place, stack) != "stream":
        yield
        return
    client = place.session.client("lambda")
    mappings = client.list_event_source_mappings(FunctionName=stack.aggregator)["EventSourceMappings"]
    if len(mappings) != 1:
        raise TallyctlError(
            f"{stack.aggregator} has {len(mappings)} stream mappings, so likes would not be counted once"
        )
    mapping, window_s = mappings[0]["UUID"], mappings[0].get("MaximumBatchingWindowInSeconds", 0)
    if not window_s:
        yield
        return
    ended = threading.Event()
    gathering = threading.Thread(target=_gather, args=(client, mapping, window_s, ended), daemon=True)
    gathering.start()
    try:
        yield
    finally:
        ended.set()
        gathering.join()
        client.update_event_source_mapping(UUID=mapping, Enabled=True)


def _gather(client: "LambdaClient", mapping: str, window_s: int, ended: threading.Event) -> None:
    while not ended.is_set():
        client.update_event_source_mapping(UUID=mapping, Enabled=False)
        ended.wait(window_s)
        client.update_event_source_mapping(UUID=mapping, Enabled=True)
        ended.wait(_HANDOVER_S)
