"""What may be configured: the environment of the functions, read and checked once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from tallystream.rules import DEFAULT_COUNTERS, RuleError, Rules

CountingPath = Literal["stream", "transaction"]

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_QUEUE_URL = re.compile(r"https?://[^\s/]+/\S+")


class SettingsError(ValueError):
    """A variable that is missing, empty or malformed; the message names it and says what it should be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one function. Frozen: what the first invocation saw, the last one sees."""

    table_name: str
    rules: Rules
    counting_path: CountingPath
    failed_batches_url: str | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings from environment variables; surrounding white space does not matter.

        `TABLE_NAME` is required. `COUNTERS` and `COUNTING_PATH` have defaults. `FAILED_BATCHES_URL` is None if it is
        missing: the function that needs it says so.

        Raises:
            SettingsError: a variable is missing, empty or malformed.
        """
        table_name = environment.get("TABLE_NAME", "").strip()
        if not _TABLE_NAME.fullmatch(table_name):
            raise SettingsError(
                f"TABLE_NAME must be the name of a DynamoDB table (3 to 255 of A-Z a-z 0-9 _ . -), not {table_name!r}"
            )
        try:
            rules = Rules.parse(environment.get("COUNTERS", DEFAULT_COUNTERS))
        except RuleError as error:
            raise SettingsError(f"COUNTERS: {error}") from error
        counting_path = environment.get("COUNTING_PATH", "stream").strip()
        if counting_path not in ("stream", "transaction"):
            raise SettingsError(f"COUNTING_PATH must be stream or transaction, not {counting_path!r}")
        url = environment.get("FAILED_BATCHES_URL")
        if url is not None:
            url = url.strip()
            if not _QUEUE_URL.fullmatch(url):
                raise SettingsError(f"FAILED_BATCHES_URL must be the URL of an SQS queue, not {url!r}")
        return cls(table_name, rules, cast("CountingPath", counting_path), url)
