"""The Unix socket of a session: where it is, who listens, and who is at the other end."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hermes.errors import ResourceError, UsageError

SOCKET_NAME = "live.sock"
_NEW = f"{SOCKET_NAME}.new"
_PATH_BYTES = 100  # macOS takes 103, Linux 107
_CONNECT_S = 10.0


class NotLiveError(UsageError):
    """No `watch` listens in this session."""


def listen(folder: Path) -> socket.socket:
    """A listening socket in a session's folder, for its owner alone; one that a killed process has left is replaced.

    Raises:
        UsageError: somebody listens there already, or what has the socket's name is none.
        ResourceError: the file system lets no socket be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_name(folder) as short:
            _check_free(folder, short / SOCKET_NAME)
            new = short / _NEW
            new.unlink(missing_ok=True)
            listener.bind(os.fsencode(new))
            new.chmod(0o600)
            listener.listen()
            new.replace(short / SOCKET_NAME)  # so that nobody ever finds it with another mode, or deaf
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise ResourceError(f"cannot listen in {folder}: {reason}", "give the session a folder on a local disk") from error
    except BaseException:
        listener.close()
        raise
    return listener


def connect(folder: Path) -> socket.socket:
    """A connection to who listens in a session's folder.

    Raises:
        NotLiveError: nobody does.
        UsageError: somebody does, but we may not connect, or nobody takes the call.
    """
    try:
        with _short_name(folder) as short:
            return _call(short / SOCKET_NAME)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise NotLiveError("no running watch has this session open", "start it with hermes watch") from error
    except OSError as error:
        others = isinstance(error, PermissionError)
        hint = "only the user who started it can ask it" if others else "try again in a moment"
        raise UsageError(f"cannot reach the running watch: {error.strerror or error}", hint) from error


def peer_user(connection: socket.socket) -> int:
    """The user id of the process that made the connection."""
    if sys.platform == "linux":  # struct ucred: pid, uid, gid
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    else:  # struct xucred of macOS and the BSDs: version, uid, groups; by number, since Python does not name them everywhere
        _, user = struct.unpack_from("2I", connection.getsockopt(0, 1, 128))
    return int(user)


def _check_free(folder: Path, path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{folder / SOCKET_NAME} is no socket", "it is not from hermes: move it away")
    try:
        _call(path).close()
    except ConnectionRefusedError:
        return
    except (TimeoutError, BlockingIOError):  # too many others are calling
        pass
    raise UsageError("another watch has this session open", "ask that one, or start another session")


def _call(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_S)
        connection.connect(os.fsencode(path))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _short_name(folder: Path) -> Iterator[Path]:
    """A name of the folder that a socket's path has room for: its own, or a link that nobody else can touch."""
    if len(os.fsencode(folder / _NEW)) <= _PATH_BYTES:
        yield folder
        return
    with TemporaryDirectory(prefix="hermes-") as place:
        link = Path(place, "session")
        link.symlink_to(folder.absolute(), target_is_directory=True)
        yield link
