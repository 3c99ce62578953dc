"""The times that the simulation assumes, each with its source. Nothing here was measured on AWS by this project."""

PUT_S = 0.00755
"""One write of one item, p50. Alex DeBrie's measurement from a Lambda function, 2020:
https://github.com/alexdebrie/dynamodb-performance-testing. AWS itself says "single-digit millisecond":
https://aws.amazon.com/dynamodb/. Reads are taken to be as fast."""

TRANSACTION_S = 0.0253
"""One `TransactWriteItems`, p50 of five items in the same measurement; two items may be a little faster."""

HOLD_S = TRANSACTION_S - PUT_S
"""How long a transaction is taken to be in the way of others on its items: what it takes longer than a plain write,
since it prepares and commits. An assumption: AWS publishes no figure."""

OPTIMISTIC_WINDOW_S = PUT_S
"""From the read of a version until the write that depends on it is applied: one round trip."""

OWN_CODE_S = 0.005
"""What the API function needs beside its requests, when it is warm: an assumption."""

POLL_S = 0.25
"""Lambda looks at each shard four times a second.
https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html#dynamodb-polling-and-batching"""

INVOKE_S = 0.03
"""From the end of gathering to the function's first request, when it is warm: an assumption."""

COLD_AFTER_S = 600.0
"""A function that was idle for longer starts anew: an assumption, AWS publishes no figure."""

START_S = 0.8
"""How long such a start takes, which is billed: an assumption, most of it the import of boto3. That it is billed:
https://aws.amazon.com/blogs/compute/aws-lambda-standardizes-billing-for-init-phase/"""

PARENTS_PER_SECOND = 545
"""How many parents the aggregator updates a second, with 32 threads and an endpoint that answers after 5 ms: `make
bench`, docs/decisions/2026-11-30-what-boto3-costs.md."""

SERVICE_S = {
    "PutItem": PUT_S,
    "UpdateItem": PUT_S,
    "DeleteItem": PUT_S,
    "GetItem": PUT_S,
    "Query": PUT_S,
    "TransactWriteItems": TRANSACTION_S,
}
"""How long each request takes."""

ASSUMED = {
    "write_or_read_s": PUT_S,
    "transaction_s": TRANSACTION_S,
    "transaction_holds_an_item_s": HOLD_S,
    "optimistic_window_s": OPTIMISTIC_WINDOW_S,
    "own_code_s": OWN_CODE_S,
    "poll_s": POLL_S,
    "invoke_s": INVOKE_S,
    "cold_after_s": COLD_AFTER_S,
    "cold_start_s": START_S,
    "parents_per_second": PARENTS_PER_SECOND,
}
"""All of them by name, to be shown beside what follows from them."""

LABELS = {
    "AWS, DynamoDB": "single-digit millisecond reads and writes (https://aws.amazon.com/dynamodb/)",
    "AWS, Lambda": "polls each shard of a stream four times a second (https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html)",
    "AWS, one partition": "1,000 write units and 3,000 read units a second "
    "(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html)",
    "A. DeBrie, 2020, PutItem": "p50 7.6 ms, p99 16.2 ms (https://github.com/alexdebrie/dynamodb-performance-testing)",
    "A. DeBrie, 2020, TransactWriteItems of 5": "p50 25.3 ms, p99 92.5 ms (the same)",
}
"""Published figures, to be shown beside what is simulated; who published them is in the label."""
