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
# MaximumRecordAgeInSeconds and TumblingWindowInSeconds of
# https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html. The age may be more there, but a
# stream keeps no record for longer than a day.
_RECORD_AGES_S = range(60, 24 * 3600 + 1)
_WINDOWS_S = range(901)


class SettingsError(ValueError):
    """A variable that is missing, empty or malformed; the message names it and says what it should be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one function. Frozen: what the first invocation saw, the last one sees."""

    table_name: str
    rules: Rules
    counting_path: CountingPath
    failed_batches_url: str | None
    record_age_s: int | None
    """The age at which the event source mapping gives a record up."""
    window_s: int | None
    """The event source mapping's tumbling window; 0 if it has none, and then its events name no shard."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings from environment variables; surrounding white space does not matter.

        `TABLE_NAME` is required. `COUNTERS` and `COUNTING_PATH` have defaults. `FAILED_BATCHES_URL`,
        `RECORD_AGE_SECONDS` and `WINDOW_SECONDS` are None if they are missing: the function that needs one says so.

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
        return cls(
            table_name,
            rules,
            cast("CountingPath", counting_path),
            url,
            _seconds(environment, "RECORD_AGE_SECONDS", _RECORD_AGES_S),
            _seconds(environment, "WINDOW_SECONDS", _WINDOWS_S),
        )


def _seconds(environment: Mapping[str, str], name: str, allowed: range) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not (text.strip().isdecimal() and int(text) in allowed):
        raise SettingsError(f"{name} must be {allowed[0]} to {allowed[-1]}, as the stream mapping has it, not {text!r}")
    return int(text)
