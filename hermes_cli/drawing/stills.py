"""Small pictures of moments of a source."""

from __future__ import annotations

import io
from collections.abc import Iterable

from hermes.sources import Source

_LONGER_SIDE = 320  # pixels
_QUALITY = 75


def stills(source: Source, times_s: Iterable[float]) -> list[bytes]:
    """The frame on show at each time as a small JPEG.

    Raises:
        SourceError: the source cannot be decoded.
        UsageError: a time lies past its end.
    """
    return [_jpeg(source, time_s) for time_s in times_s]


def _jpeg(source: Source, time_s: float) -> bytes:
    from PIL import Image  # noqa: PLC0415 - it has no part in --help

    image = Image.fromarray(source.frame_at(time_s, max_side=_LONGER_SIDE).rgb)
    image.thumbnail((_LONGER_SIDE, _LONGER_SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
