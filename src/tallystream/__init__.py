"""Exact tallies of child items in DynamoDB, kept by the table's stream.

What counts where? `rules`. How is a batch grouped? `changes`. How does a tally stay exact? `counters`.
How is a batch applied and answered? `batches`. What do the items look like? `keys`. Which errors mean what? `faults`.
Where does a change go that can never be counted? `failures`. What may be configured? `settings`.
The HTTP side: `requests` reads, `likes` and `posts` act.
"""
