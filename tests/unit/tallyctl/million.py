"""An audit of a million children, in a process of its own: what it finds, and how much memory it takes.

Half of them are likes of one post, the others of 5,000 posts. No post has a tally, so the first audit reads and repairs
every one; the second proves every one right. Items are made when they are read, so that they take no memory themselves.
"""

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor

from audited import AuditedTable
from tallyctl.audit import Segment, rounds
from tallyctl.findings import Findings, Place
from tallystream.dynamodb import DynamoDbItems, DynamoDbTable

POSTS, LIKES, HOT, PAGE = 5000, 100, 500_000, 5000
SEGMENTS = 5
POSTS_A_PAGE = 50


def likes(post, start, end):
    """Return some likes of a post."""
    return [
        {"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#user-{number:08d}-0a1b2c3d"}}
        for number in range(start, end)
    ]


class Client:
    """A table whose likes are made up when they are asked for; the tallies are what was written."""

    def __init__(self):
        self.queries = 0
        self.tallies = {}

    def meta(self, post):
        """Return a post."""
        return {"PK": {"S": f"POST#{post}"}, "SK": {"S": "META"}, **self.tallies.get(f"POST#{post}", {})}

    def scan(self, *, Segment, ExclusiveStartKey=None, **_):  # noqa: N803 - boto3's names
        """Return a page: of the hot post in the first segment, of fifty posts in the others."""
        page = ExclusiveStartKey["page"] if ExclusiveStartKey else 0
        if Segment == 0:
            pages = HOT // PAGE
            items = likes("hot", page * PAGE, page * PAGE + PAGE)
            items += [self.meta("hot")] if page + 1 == pages else []
        else:
            posts = POSTS // (SEGMENTS - 1)
            pages = posts // POSTS_A_PAGE
            first = (Segment - 1) * posts + page * POSTS_A_PAGE
            items = [
                item
                for post in range(first, first + POSTS_A_PAGE)
                for item in [*likes(post, 0, LIKES), self.meta(post)]
            ]
        return {"Items": items, **({"LastEvaluatedKey": {"page": page + 1}} if page + 1 < pages else {})}

    def query(self, *, ExpressionAttributeValues, ExclusiveStartKey=None, **_):  # noqa: N803 - boto3's names
        """Return a page of a post's likes."""
        self.queries += 1
        post = ExpressionAttributeValues[":pk"]["S"].removeprefix("POST#")
        page = ExclusiveStartKey["page"] if ExclusiveStartKey else 0
        end = (page + 1) * PAGE
        size = HOT if post == "hot" else LIKES
        more = {"LastEvaluatedKey": {"page": page + 1}} if end < size else {}
        return {"Items": likes(post, end - PAGE, min(end, size)), **more}

    def get_item(self, *, Key, **_):  # noqa: N803 - boto3's names
        """Return a post."""
        return {"Item": self.meta(Key["PK"]["S"].removeprefix("POST#"))}

    def update_item(self, *, Key, ExpressionAttributeValues, **_):  # noqa: N803 - boto3's names
        """Apply a repair: each post has one, of a tally that is not there yet."""
        assert Key["PK"]["S"] not in self.tallies
        self.tallies[Key["PK"]["S"]] = {"likeTally": ExpressionAttributeValues[":d0"]}
        return {"Attributes": {}}


def peak_mb():
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    """Audit twice, and print a line of JSON for each."""
    audited, client = AuditedTable(), Client()
    items = DynamoDbItems(client, "T", audited.now, ["likeTally"])
    before = peak_mb()
    with ThreadPoolExecutor(SEGMENTS) as pool:
        auditor = audited.auditor(items=items, table=DynamoDbTable(client, "T"), concurrently=pool.map)
        for _ in range(2):
            client.queries, began = 0, time.monotonic()
            findings = Findings({})
            parts = [
                Segment(number, items.scan(number, SEGMENTS), audited.rules, Place(None, done=False))
                for number in range(SEGMENTS)
            ]
            rounds(auditor, parts, findings, lambda: items.units, mend=True)
            figures = findings.figures(0)
            findings.close()
            seconds = round(time.monotonic() - began, 1)
            more = {"queries": client.queries, "grown_mb": round(peak_mb() - before), "seconds": seconds}
            print(json.dumps(figures | more))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
