"""What counts where: rules from a child's sort key to its parent's sort key and attribute.

A rule is data, so that another kind of child needs no code: likes of a post, replies of a comment, members of a
workspace. Child and parent share the partition key, so that one item collection holds both.
"""

import json
import re
from dataclasses import dataclass

MARK_PREFIX = "mark#"
DEFAULT_COUNTERS = '[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"}]'

_FIELDS = ("child", "parent", "attribute")
_SEGMENT = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")


class RuleError(ValueError):
    """A rule that cannot be followed; the message shows the rule and says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Children whose sort key begins with `child` count on `attribute` of the item whose sort key is `parent`.

    `child` and `parent` may hold named segments in braces. A segment stands for one or more characters other than
    `#`: `REPLY#{commentId}#` counts on `COMMENT#{commentId}`.
    """

    child: str
    parent: str
    attribute: str

    @property
    def prefix(self) -> str:
        """The fixed beginning of the children's sort keys: what a `begins_with` query can use."""
        return _SEGMENT.split(self.child, maxsplit=1)[0]

    @property
    def parent_prefix(self) -> str:
        """The fixed beginning of the parents' sort keys."""
        return _SEGMENT.split(self.parent, maxsplit=1)[0]


class Rules:
    """The rules of one deployment, checked once and then asked for each record."""

    def __init__(self, rules: list[Rule]) -> None:
        """Check the rules against each other.

        Raises:
            RuleError: none is given, two count the same children on the same attribute, or a parent would itself be
                counted as a child by its rule.
        """
        if not rules:
            raise RuleError("at least one rule is needed: with none, nothing would ever be counted")
        for number, rule in enumerate(rules):
            if _pattern(rule.child).match(_SEGMENT.sub("x", rule.parent)):
                raise RuleError(f"rule {number + 1} {rule} would count its own parent as a child")
            for other in rules[:number]:
                same = (rule.parent, rule.attribute) == (other.parent, other.attribute)
                if same and (rule.prefix.startswith(other.prefix) or other.prefix.startswith(rule.prefix)):
                    raise RuleError(f"rule {number + 1} {rule} and {other} would count the same children twice")
        self.all = tuple(rules)
        # Most rules have no segment, and `startswith` is several times faster than a pattern.
        plain = [rule for rule in rules if not _SEGMENT.search(rule.child)]
        self._plain = [(rule.child, (rule.parent, rule.attribute)) for rule in plain]
        self._segmented = [(_pattern(rule.child), rule) for rule in rules if rule not in plain]
        self._parents = [(_pattern(rule.parent), rule) for rule in rules]
        self.only = (rules[0].child, ((rules[0].parent, rules[0].attribute),)) if plain and len(rules) == 1 else None
        """For the hot path: prefix and targets, where there is just one rule and it has no segment."""

    @classmethod
    def parse(cls, text: str) -> "Rules":
        """Read the rules from the JSON text of the environment variable `COUNTERS`.

        Raises:
            RuleError: the text is not a JSON list of objects with the strings child, parent and attribute, or a rule
                cannot be followed. The message names the rule.
        """
        try:
            entries = json.loads(text)
        except ValueError as error:
            raise RuleError(f"not JSON ({error}); a valid value is {DEFAULT_COUNTERS}") from error
        if not isinstance(entries, list):
            raise RuleError(f"must be a JSON list of rules; a valid value is {DEFAULT_COUNTERS}")
        return cls([_rule(number, entry) for number, entry in enumerate(entries, start=1)])

    def parents_of(self, sort_key: str) -> tuple[tuple[str, str], ...]:
        """Return (parent sort key, attribute) for each rule that counts an item with this sort key."""
        found = [target for prefix, target in self._plain if sort_key.startswith(prefix)]
        for pattern, rule in self._segmented:
            match = pattern.match(sort_key)
            if match:
                segments = match.groupdict()
                found.append((_SEGMENT.sub(lambda name, of=segments: of[name[1]], rule.parent), rule.attribute))  # type: ignore[misc]
        return tuple(found)

    def counted_on(self, parent_sort_key: str) -> tuple[tuple[str, str], ...]:
        """Return (attribute, sort-key prefix of its children) for each rule that counts on a parent with this sort key.

        The inverse of `parents_of`. A prefix is as long as the parent's sort key tells; where it is shorter than what
        the rule says, it covers other parents' children too, and `parents_of` tells them apart.
        """
        found = []
        for pattern, rule in self._parents:
            match = pattern.fullmatch(parent_sort_key)
            if match:
                found.append((rule.attribute, _known_prefix(rule, match.groupdict())))
        return tuple(found)


def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of sort keys: fixed text, and named segments without `#`; one named again is the same text."""
    parts = _SEGMENT.split(text)
    seen: set[str] = set()
    pattern = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            pattern += re.escape(part)
        else:
            pattern += f"(?P={part})" if part in seen else f"(?P<{part}>[^#]+)"
            seen.add(part)
    return re.compile(pattern)


def _known_prefix(rule: Rule, segments: dict[str, str]) -> str:
    """Return the beginning of a rule's children's sort keys, up to the first segment that the parent does not name."""
    # Two segments with nothing between them have no one reading: the parent's key does not tell where one ends.
    if re.search(r"\}\{", rule.parent):
        return rule.prefix
    parts = _SEGMENT.split(rule.child)
    prefix = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            prefix += part
        elif part in segments:
            prefix += segments[part]
        else:
            break
    return prefix


def _rule(number: int, entry: object) -> Rule:
    """Return the rule that a JSON object describes; raise RuleError with its number and text."""
    shown = f"rule {number} {json.dumps(entry, ensure_ascii=False)}"
    if not isinstance(entry, dict):
        raise RuleError(f"{shown} must be an object with {', '.join(_FIELDS)}")
    unknown = sorted(set(entry) - set(_FIELDS))
    if unknown:
        raise RuleError(f"{shown} has fields that no rule has: {', '.join(unknown)}")
    for field in _FIELDS:
        if not isinstance(entry.get(field), str) or not entry[field]:
            raise RuleError(f"{shown} needs {field} as a string that is not empty")
    rule = Rule(**entry)
    names = _SEGMENT.findall(rule.child)
    if len(names) != len(set(names)):
        raise RuleError(f"{shown} names a segment twice in child")
    missing = sorted(set(_SEGMENT.findall(rule.parent)) - set(names))
    if missing:
        raise RuleError(f"{shown} uses segments in parent that child does not have: {', '.join(missing)}")
    if re.search(r"[{}]", _SEGMENT.sub("", rule.child + rule.parent)):
        raise RuleError(f"{shown} has a brace that is not part of a named segment such as {{commentId}}")
    if not rule.prefix:
        raise RuleError(f"{shown} needs fixed text before the first segment of child")
    if rule.attribute in {"PK", "SK"} or rule.attribute.startswith(MARK_PREFIX):
        raise RuleError(f"{shown} must not count on a key or on a mark")
    return rule
