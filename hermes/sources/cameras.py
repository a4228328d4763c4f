"""Which cameras there are, without touching them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from hermes.errors import SourceError

_NODES = Path("/sys/class/video4linux")


@dataclass(frozen=True)
class CameraInfo:
    """A camera that the system knows.

    Attributes:
        index: by which OpenCV opens it.
        name: what it calls itself.
        device: its file.
    """

    index: int
    name: str
    device: str


def can_list_cameras() -> bool:
    """Whether this system tells which cameras it has."""
    return sys.platform == "linux"


def list_cameras() -> list[CameraInfo]:
    """The cameras of a Linux machine, by index. A camera's first node has its pictures; the further ones are metadata."""
    nodes = sorted(_NODES.glob("video*"), key=lambda node: int(node.name.removeprefix("video")))
    return [
        CameraInfo(int(node.name.removeprefix("video")), (node / "name").read_text().strip(), f"/dev/{node.name}")
        for node in nodes
        if (node / "index").read_text().strip() == "0"
    ]


def find_camera(name: str) -> CameraInfo:
    """The camera of that name, or the only one with that in its name; raises `SourceError`."""
    cameras = list_cameras()
    wanted = name.casefold()
    matching = [camera for camera in cameras if camera.name == name] or [
        camera for camera in cameras if wanted in camera.name.casefold()
    ]
    if len(matching) != 1:
        raise SourceError(f"{len(matching) or 'no'} cameras are called {name!r}", which_there_are())
    return matching[0]


def which_there_are() -> str:
    """A hint that names them."""
    if not can_list_cameras():
        return "this system does not list its cameras; try 0, 1, ..."
    cameras = ", ".join(f"{camera.index} ({camera.name})" for camera in list_cameras())
    return f"these are here: {cameras}" if cameras else "no camera is connected, or this user may not see it"
