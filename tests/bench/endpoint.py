"""An endpoint that answers every `UpdateItem` alike, as fast as it can: what is measured is the client.

It runs in a process of its own and prints its port when it listens. Options: `--delay-ms`, how long each answer waits.
"""

from __future__ import annotations

import argparse
import asyncio
import json

ITEM = {
    "PK": {"S": "POST#post-000001"},
    "SK": {"S": "META"},
    "likeTally": {"N": "1234"},
    "body": {"S": "A post of the usual length: a hundred characters or so, with a link and perhaps two words more. "},
    "authorId": {"S": "author-0001"},
    "createdAt": {"N": "1796040000"},
    "mark#00000001769432789123-0a1b2c3d": {"M": {"seq": {"S": "1".zfill(40)}, "at": {"N": "1796040000"}}},
}
_END_OF_HEAD = b"\r\n\r\n"


def _response(body: bytes) -> bytes:
    # Without the CRC32 that DynamoDB sends: the client then checks none, on either side of a comparison.
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nx-amzn-RequestId: 0\r\n"
        b"Content-Length: %d\r\n\r\n%b"
    ) % (len(body), body)


WITH_ITEM = _response(json.dumps({"Attributes": ITEM}, separators=(",", ":")).encode())
EMPTY = _response(b"{}")


class Endpoint(asyncio.Protocol):
    """One connection, kept alive: requests of a known length in, the same answer out each time."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is here in full. The client sends head and body apart."""
        self._received += data
        while (end := self._received.find(_END_OF_HEAD)) >= 0:
            head = self._received[:end].lower()
            _, _, after = head.partition(b"content-length:")
            total = end + len(_END_OF_HEAD) + int(after.split(b"\r\n", 1)[0])
            if len(self._received) < total:
                return
            request, self._received = self._received[:total], self._received[total:]
            self._answer(WITH_ITEM if b'"ReturnValues"' in request else EMPTY)

    def _answer(self, response: bytes) -> None:
        assert self._transport
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, response)
        else:
            self._transport.write(response)


async def serve(delay_s: float) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(lambda: Endpoint(delay_s), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - how the parent process learns the port
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=0)
    asyncio.run(serve(parser.parse_args().delay_ms / 1000))
