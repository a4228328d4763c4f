"""Sessions: what was watched, asked and remembered, kept in a folder each, so that any moment can be asked about later."""

from __future__ import annotations

from hermes.sessions.checkpoints import Checkpoint
from hermes.sessions.identity import FORMAT_VERSION, SessionInfo, SourceIdentity
from hermes.sessions.log import Log
from hermes.sessions.recording import Recorder, Recording, find_recording
from hermes.sessions.session import Session, SessionWriter
from hermes.sessions.store import SessionStore
from hermes.sessions.thinning import default_cap, thinned
from hermes.sessions.travel import Remembered, rewind

__all__ = [
    "FORMAT_VERSION",
    "Checkpoint",
    "Log",
    "Recorder",
    "Recording",
    "Remembered",
    "Session",
    "SessionInfo",
    "SessionStore",
    "SessionWriter",
    "SourceIdentity",
    "default_cap",
    "find_recording",
    "rewind",
    "thinned",
]
