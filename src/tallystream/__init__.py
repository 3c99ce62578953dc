"""Exact tallies of child items in DynamoDB, kept by the table's stream.

What counts where? `rules`. How is a batch grouped? `changes`. How does a tally stay exact? `counters`.
How is a batch applied and answered? `batches`. What do the items look like? `keys`. Which errors mean what? `faults`.
Where does a change go that can never be counted? `failures`. What may be configured? `settings`.
How wrong is a tally? `audit`. How is a table audited, and repaired? `auditor`. What does the stream hold? `streams`.
Which posts does an audit look at that cannot look at all? `sampling`. Requests and answers of DynamoDB: `dynamodb`.
The HTTP side: `requests` reads, `likes` and `posts` act.
"""
