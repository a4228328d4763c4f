"""Requests and replies as lines of JSON."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from hermes.errors import HermesError, ModelError, PartialError, ResourceError, SourceError, UsageError

VERSION = 1
REQUEST_BYTES = 64 * 1024

Record = dict[str, Any]


def to_line(record: Record) -> bytes:
    """A record as a line; characters beyond ASCII are escaped, unpaired surrogates among them.

    Raises:
        TypeError, ValueError: it is no JSON, for example because a number in it is not finite.
    """
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def parse_request(line: bytes) -> Record:
    """The request that a line holds, its version checked and nothing else.

    Raises:
        UsageError: it is no JSON object in UTF-8, or of another version.
    """
    try:
        request = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):  # the latter from brackets in brackets
        request = None
    if not isinstance(request, dict):
        raise UsageError("the message is no JSON object on one line of UTF-8", "ask with hermes ask")
    if request.get("version") != VERSION:
        raise UsageError(f"the message is not in version {VERSION} of the protocol", "use the same hermes as the watch")
    return request


def error_record(error: HermesError) -> Record:
    """An error as the last record of a reply."""
    return {"type": "error", "code": error.exit_code, "message": error.message, "hint": error.hint or None}


def error_of(record: Record) -> HermesError:
    """The error that an `error_record` tells of."""
    kinds = {kind.exit_code: kind for kind in (UsageError, SourceError, ModelError, ResourceError, PartialError)}
    return kinds.get(record["code"], HermesError)(record["message"], record["hint"] or "")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
