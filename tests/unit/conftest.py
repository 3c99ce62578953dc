"""What the tests of the counting share: the table in memory, the failure queue, the product on both."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import ClientError

from fakes import LOST, FakeSqs, FaultyDynamoDb, batches_on


@pytest.fixture
def table():
    """Give a table in memory that holds the posts p1 and p2."""
    table = FaultyDynamoDb()
    table.add_post("p1")
    table.add_post("p2")
    return table


@pytest.fixture
def queue():
    """Give a failure queue in memory."""
    return FakeSqs()


@pytest.fixture
def batches(table, queue):
    """Give the product on `table` and `queue`."""
    return batches_on(table, queue)


@pytest.fixture
def served(table):
    """Give the URL of a server that speaks DynamoDB's protocol for `table`.

    A planted LOST is applied, and the connection is closed without an answer: the SDK sees what it sees when an answer
    is lost on the way.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request.pop("TableName")
            assert self.headers["X-Amz-Target"] == "DynamoDB_20120810.UpdateItem"
            try:
                status, answer = 200, table.update_item(**request)
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                answer = {"__type": "com.amazonaws.dynamodb.v20120810#" + error.response["Error"]["Code"]}
                answer |= {"message": error.response["Error"]["Message"]}
                answer |= {"Item": error.response["Item"]} if "Item" in error.response else {}
            except type(LOST):
                return
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing: what was called is in `table.calls`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
