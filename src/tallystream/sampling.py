"""Which item collections does an audit look at that cannot look at all? A random sample of them, each one whole."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tallystream.auditor import Group, groups
from tallystream.rules import Rules

if TYPE_CHECKING:
    from tallystream.dynamodb import Page

ITEMS_A_SEGMENT = 200
"""So many items are in one segment of the scan, on average: the smaller, the more random the sample."""

MOST_SEGMENTS = 1_000_000
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Scan.html, TotalSegments"""

MOST_DRAWN = 10_000
"""So many segments are drawn at most: a table's item count may be hours old, and all its segments empty by now."""


class Scanned(Protocol):
    """The port to the table: its pages, segment by segment, and what they cost."""

    @property
    def units(self) -> float:
        """Read units consumed so far."""

    def scan(self, segment: int, segments: int) -> "Iterator[Page]":
        """Yield the pages of one segment, strongly consistent."""


def segments_of(item_count: int) -> int:
    """Return into how many segments a scan divides a table of so many items."""
    return max(1, min(MOST_SEGMENTS, item_count // ITEMS_A_SEGMENT))


def sample(
    table: Scanned,
    segments: int,
    rules: Rules,
    choose: Callable[[Sequence[int], int], Iterable[int]],
    enough: Callable[[Sequence[Group]], bool],
) -> list[Group]:
    """Return item collections of a random sample of a table's segments, those in which nothing counts left out.

    Each collection has the same chance, whatever its size. One that is cut off, since there was enough before its
    segment had ended, is not among them: it would be judged by a part of its children.

    Args:
        table: what is scanned.
        segments: into how many the scan divides it.
        rules: what counts where.
        choose: returns so many of the numbers, each once, in random order, as `random.sample` does.
        enough: says, from the collections so far, whether to stop; asked before each segment and after each page.
    """
    found: list[Group] = []
    for segment in choose(range(segments), min(segments, MOST_DRAWN)):
        if enough(found):
            break
        whole = True
        pages: list[Page] = []
        for page in table.scan(segment, segments):
            pages.append(page)
            whole = page.after is None
            if enough(found):
                break
        here = list(groups(((page.began, page.items) for page in pages), rules))
        found += [group for group in (here if whole else here[:-1]) if group.all_parents()]
    return found
