"""The cases that went wrong for others, in tests that a reader finds by the case's number: `grep -rn "b36_" tests`."""

import re
from pathlib import Path

CASES = (1, 3, 5, 7, 8, 9, 10, 11, 12, 14, 15, 17, 20, 21, 23, 24, 26, 27, 29, 31, 32, 34, 36, 38, 39, 40)


def test_each_case_is_in_the_name_of_a_test():
    """A case that a test only mentions, or that is lost when a test is renamed, is not found."""
    found = set()
    for file in Path(__file__).parents[1].rglob("test_*.py"):
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE):
            found |= set(name.split("_"))
    assert [case for case in CASES if f"b{case:02d}" not in found] == []
