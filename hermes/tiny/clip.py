"""Clips of the world: an ordinary video file to try the model on."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av

from hermes.tiny.render import video_frames
from hermes.tiny.world import Video


def write_clip(video: Video, path: Path, size: int = 336, fps: int = 25, crf: int = 23) -> None:
    """Write the video as H.264 in MP4: every frame of the world is held for one second of `fps` encoded frames.

    One encoder thread, since x264's output depends on their number.
    """
    with av.open(str(path), "w", container_options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": str(crf), "preset": "veryfast"})
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for second, picture in enumerate(video_frames(video, size)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.time_base = Fraction(1, fps)
            for repeat in range(fps):
                frame.pts = second * fps + repeat
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
