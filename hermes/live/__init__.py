"""Asking a running `watch` from another process of the same user, over a Unix socket in the session's folder.

A connection carries one request and its reply. The request is one line: a JSON object in UTF-8 with `"version": 1` and
whatever the handler understands. The reply is JSON objects too, one a line; the last has `"type"` `answer`, or `error` with
`code` (the exit code of the command), `message` and `hint`.
"""

from __future__ import annotations

from hermes.live.address import NotLiveError
from hermes.live.client import ask_live
from hermes.live.server import LiveServer
from hermes.live.turnstile import Turnstile

__all__ = ["LiveServer", "NotLiveError", "Turnstile", "ask_live"]
