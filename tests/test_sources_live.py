"""Cameras and other live sources: what they do when pictures stop, stay the same, come too fast, or never come again."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hermes.errors import SourceError
from hermes.frames import Frame
from hermes.sources import Connecting, Feed, FrameList, Report, Source, VideoFile, camera, cameras, live, open_source
from hermes.sources import feed as feed_module
from hermes.sources.camera import Camera
from hermes.sources.feed import Pulse
from hermes.sources.live import LiveSource, Shot
from tests.clips import clip, cut, numbers, steady
from tests.conftest import needs_opencv

DEADLINE_S = 30.0  # nothing here takes a tenth of it


def grey(level: int) -> NDArray[np.uint8]:
    return np.full((6, 8, 3), level % 256, np.uint8)


def shot(level: int, stamp: float | None = None) -> Shot:
    picture = grey(level)
    return Shot(None if stamp is None else Fraction(str(stamp)), Fraction(0), lambda max_side: picture)


class Scripted(LiveSource):
    """Each connection gives the shots of the next script, and is lost after it; a script that raises is no connection."""

    def __init__(self, *scripts: Callable[[], Iterable[Shot]], reconnect: int | None = 0) -> None:
        self._scripts = iter(scripts)
        super().__init__("scripted", reconnect)

    def _connect(self, report: Report) -> Generator[Shot, None, None]:
        script = next(self._scripts, None)
        if script is None:
            raise SourceError("scripted: there are no more connections")
        yield from script()

    def _describe(self) -> tuple[float | None, str]:
        return 25.0, "greys"


def once_wanted(*shots: Shot) -> Callable[[], Iterator[Shot]]:
    """The shots, behind one that whoever opens the source sees and one that is thrown away until somebody wants more."""

    def script() -> Iterator[Shot]:
        yield shots[0]
        time.sleep(0.2)  # longer than it takes to begin playing
        yield from shots

    return script


def iter_of(frames: list[Frame]) -> Generator[Frame, None, None]:
    """The frames, as a source gives them."""
    yield from frames


def until(condition: Callable[[], bool]) -> None:
    """Wait until something becomes true."""
    give_up_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def played(source: Source, fps: float = 1000.0) -> tuple[list[Frame], list[str], list[Pulse]]:
    """Everything that a feed of it gives."""
    frames, news, pulses = [], list[str](), []
    with closing(Feed(source, source.frames(fps), "all")) as feed:
        give_up_s = time.monotonic() + DEADLINE_S
        while not feed.ended:
            assert time.monotonic() < give_up_s
            frame = feed.take(0.05)
            frames += [frame] if frame else []
            news += feed.news()
            pulse = feed.pulse()
            pulses += [pulse] if pulse else []
    return frames, news, pulses


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not any(thread.name == "hermes-source" for thread in threading.enumerate()))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes hundredths."""
    for name in ("_STALLED_S", "_FROZEN_S", "_LOOK_S", "_FIRST_WAIT_S"):
        monkeypatch.setattr(live, name, getattr(live, name) / 20)


class TestLiveSource:
    def test_time_starts_at_the_first_picture_taken_and_keeps_the_sources_own_steps(self) -> None:
        source = Scripted(once_wanted(*(shot(number, 500 + number / 100) for number in range(5))))
        assert source.info.is_live
        assert (source.info.width, source.info.height, source.info.fps, source.info.codec) == (8, 6, 25.0, "greys")
        frames, _, _ = played(source)
        steps = np.diff([frame.time_s for frame in frames])
        assert frames[0].time_s == 0
        assert steps[-3:] == pytest.approx(0.01, abs=0.002)

    def test_stamps_that_leave_the_wall_clock_are_tied_to_it_again(self) -> None:
        source = Scripted(once_wanted(shot(1, 10), shot(2, 10.01), shot(3, 5000), shot(4, 5000.02)))
        times = [frame.time_s for frame in played(source)[0]]
        assert times == sorted(set(times))
        assert times[-1] < DEADLINE_S
        assert times[-1] - times[-2] == pytest.approx(0.02, abs=0.002)

    def test_a_lost_connection_is_made_again_and_time_goes_on(self) -> None:
        first, second = once_wanted(shot(1, 7), shot(2, 7.01)), lambda: [shot(3, 0), shot(4, 0.01)]
        source = Scripted(first, second, reconnect=2)
        frames, news, pulses = played(source)
        assert [int(frame.rgb[0, 0, 0]) for frame in frames][-3:] == [2, 3, 4]
        times = [frame.time_s for frame in frames]
        assert times == sorted(set(times))
        assert times[-2] - times[-3] >= live._FIRST_WAIT_S * 0.9
        assert "scripted: the connection was closed; connecting again" in news
        assert any(text.startswith("scripted: nothing was seen from 00:00:0") for text in news)
        assert {"live", "reconnecting"} <= {pulse.state for pulse in pulses}
        assert pulses[-1].state == "ended"
        assert pulses[-1].reconnects == 1

    def test_gives_up_after_as_many_attempts_as_allowed_and_keeps_what_there_was(self) -> None:
        source = Scripted(once_wanted(shot(1), shot(2)), reconnect=2)
        frames, news, pulses = played(source)
        assert frames
        assert news[-1] == "scripted: there are no more connections; gave up"
        assert max(pulse.attempt for pulse in pulses) == 2
        assert source.report.ended_early is not None
        assert source.report.ended_early.end_s == frames[-1].time_s

    def test_a_connection_that_was_good_for_long_starts_the_count_of_attempts_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        again = [lambda: [shot(2)]] * 4
        assert played(Scripted(once_wanted(shot(1)), *again, reconnect=1))[2][-1].reconnects == 1
        monkeypatch.setattr(live, "_GOOD_S", 0.0)
        assert played(Scripted(once_wanted(shot(1)), *again, reconnect=1))[2][-1].reconnects == 4

    def test_no_connection_at_first_is_an_error_at_once(self) -> None:
        with pytest.raises(SourceError, match="no more connections"):
            Scripted(reconnect=None)
        with pytest.raises(SourceError, match="no picture came"):
            Scripted(list, reconnect=None)

    def test_silence_is_a_stall_and_said_once(self) -> None:
        def script() -> Iterator[Shot]:
            yield from once_wanted(shot(1))()
            time.sleep(3 * live._STALLED_S)
            yield shot(2)

        frames, news, pulses = played(Scripted(script))
        assert int(frames[-1].rgb[0, 0, 0]) == 2
        assert news.count("scripted: no new picture comes") == 1
        stalls = [pulse for pulse in pulses if pulse.state == "stalled"]
        assert all(pulse.silent_s is not None and pulse.silent_s > live._STALLED_S for pulse in stalls)
        assert stalls

    def test_pictures_that_stay_the_same_to_the_last_byte_are_questioned_once(self) -> None:
        def script(levels: Callable[[int], int]) -> Callable[[], Iterator[Shot]]:
            def shots() -> Iterator[Shot]:
                for number in range(60):
                    time.sleep(live._FROZEN_S / 25)
                    yield shot(levels(number))

            return shots

        _, news, _ = played(Scripted(script(lambda number: 7)))
        assert sum("is it frozen?" in text for text in news) == 1
        _, news, _ = played(Scripted(script(lambda number: number)))
        assert not any("frozen" in text for text in news)

    def test_stopping_ends_the_wait_between_attempts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live, "_FIRST_WAIT_S", 1000.0)
        monkeypatch.setattr(live, "_LONGEST_WAIT_S", 1000.0)
        source = Scripted(once_wanted(shot(1)), reconnect=None)
        feed = Feed(source, source.frames(1000))
        until(lambda: source.health().state == "reconnecting")
        feed.close()
        until(lambda: source.health().state == "ended")
        assert source.report.ended_early is None

    def test_nothing_is_kept_until_somebody_wants_it(self) -> None:
        taken = []

        def script() -> Iterator[Shot]:
            for number in range(10**6):
                taken.append(number)
                time.sleep(0.001)
                yield shot(number % 200)

        source = Scripted(script)
        until(lambda: len(taken) > 50)
        with closing(Feed(source, source.frames(1000))) as feed:
            frame = feed.take(DEADLINE_S)
        assert frame is not None
        assert frame.time_s == 0
        assert int(frame.rgb[0, 0, 0]) >= 45


class TestFeed:
    @pytest.mark.parametrize("fps", [0.7, 3.0, 100.0])
    def test_a_film_gives_the_same_frames_as_without_it(self, tmp_path: Path, fps: float) -> None:
        source = VideoFile(clip(tmp_path / "film.mp4", steady(100)))
        direct = [(frame.time_s, frame.rgb.tobytes()) for frame in source.frames(fps, 1.0, 8.0)]
        with closing(Feed(source, source.frames(fps, 1.0, 8.0))) as feed:
            fed = []
            while not feed.ended:
                frame = feed.take(DEADLINE_S)
                fed += [(frame.time_s, frame.rgb.tobytes())] if frame else []
        assert fed == direct

    def test_reads_only_a_few_frames_ahead_and_stops_when_closed(self) -> None:
        made = []

        def frames() -> Generator[Frame, None, None]:
            try:
                for number in range(1000):
                    made.append(number)
                    yield Frame(float(number), grey(number))
            finally:
                made.append(-1)

        source = FrameList([Frame(0.0, grey(0))])
        feed = Feed(source, frames())
        assert feed.take(DEADLINE_S) is not None
        until(lambda: len(made) > 4)
        time.sleep(0.1)
        assert len(made) < 10
        feed.close()
        until(lambda: made[-1] == -1)

    def test_the_report_is_that_of_the_frames_taken(self, tmp_path: Path) -> None:
        source = VideoFile(cut(clip(tmp_path / "short.mkv", steady(100)), 0.7))
        with closing(Feed(source, source.frames(10))) as feed:
            assert feed.take(DEADLINE_S) is not None
            assert source.report.ended_early is None
            while not feed.ended:
                feed.take(DEADLINE_S)
            assert source.report.ended_early is not None

    def test_the_report_grows_with_the_frames_taken(self) -> None:
        source = FrameList([Frame(0.0, grey(0))])
        report = source.report

        def frames() -> Generator[Frame, None, None]:
            for number in range(8):
                report.jumps = number
                yield Frame(float(number), grey(0))

        with closing(Feed(source, frames())) as feed:
            for number in range(8):
                assert feed.take(DEADLINE_S) is not None
                assert source.report.jumps == number

    def test_what_is_coming_of_a_film_is_known(self) -> None:
        made = [Frame(float(number), grey(0)) for number in range(20)]
        with closing(Feed(FrameList(made), iter_of(made), ahead=8)) as feed:
            until(lambda: len(feed.coming(100)) == 8)
            assert feed.coming(3) == made[:3]
            assert feed.take(DEADLINE_S) is made[0]
            until(lambda: feed.coming(8) == made[1:9])

    def test_large_frames_are_not_read_far_ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = [Frame(float(number), grey(0)) for number in range(20)]
        monkeypatch.setattr(feed_module, "_ROOM_BYTES", 6 * grey(0).nbytes)
        with closing(Feed(FrameList(made), iter_of(made), ahead=16)) as feed:
            until(lambda: len(feed.coming(100)) == 6)
            time.sleep(0.1)
            assert len(feed.coming(100)) == 6

    def test_of_what_is_live_nothing_that_comes_is_certain(self) -> None:
        source = Scripted(once_wanted(*map(shot, range(4))))
        with closing(Feed(source, source.frames(1000), "all", ahead=8)) as feed:
            assert feed.take(DEADLINE_S) is not None
            assert feed.coming(8) == []

    def test_what_reading_raises_comes_after_the_frames_before_it(self) -> None:
        def frames() -> Generator[Frame, None, None]:
            yield Frame(0.0, grey(0))
            raise SourceError("gone")

        with closing(Feed(FrameList([Frame(0.0, grey(0))]), frames())) as feed:
            assert feed.take(DEADLINE_S) is not None
            with pytest.raises(SourceError, match="gone"):
                feed.take(DEADLINE_S)
            assert feed.ended

    @staticmethod
    def _fast(count: int) -> Callable[[], Iterator[Shot]]:
        def script() -> Iterator[Shot]:
            for number in range(count):
                time.sleep(0.005)
                yield shot(number)

        return script

    def test_a_slow_model_gets_the_newest_frame_of_a_camera_and_the_rest_is_counted(self) -> None:
        source, taken, pulses = Scripted(self._fast(250)), [], []
        with closing(Feed(source, source.frames(1000))) as feed:
            while not feed.ended:
                frame = feed.take(1.0)
                taken += [frame] if frame else []
                time.sleep(0.1)  # the model
                pulse = feed.pulse()
                pulses += [pulse] if pulse else []
        levels = [int(frame.rgb[0, 0, 0]) for frame in taken]
        skipped = np.diff(levels) % 256
        assert skipped[:-1].min() > 4
        assert pulses[-1].dropped == pytest.approx(int(skipped.sum()) - len(skipped), abs=2)
        lags = [pulse.lag_s for pulse in pulses if pulse.lag_s is not None]
        assert max(lags) < 5.0  # it does not grow; the rest is the patience of a busy machine

    def test_all_frames_wait_as_long_as_there_is_room(self) -> None:
        source, taken, news = Scripted(self._fast(200)), [], list[str]()
        with closing(Feed(source, source.frames(1000), "all")) as feed:
            until(lambda: source.health().state == "ended")
            while not feed.ended:
                frame = feed.take(1.0)
                taken += [frame] if frame else []
                news += feed.news()
        assert len(taken) == 32
        assert int(taken[-1].rgb[0, 0, 0]) == 199
        assert sum("wait for the model" in text for text in news) == 1


class FakeCapture:
    """What `cv2.VideoCapture` is to `Camera`; subclasses say what reading does."""

    opened = 0
    released = 0

    def __init__(self, device: int | str) -> None:
        type(self).opened += 1
        self._reads = 0

    def isOpened(self) -> bool:  # noqa: N802
        return True

    def get(self, key: int) -> float:
        return 30.0

    def release(self) -> None:
        type(self).released += 1

    def read(self) -> tuple[bool, NDArray[np.uint8] | None]:
        self._reads += 1
        time.sleep(0.005)
        return (True, grey(self._reads)) if self._reads <= 30 else self.after()

    def after(self) -> tuple[bool, NDArray[np.uint8] | None]:
        raise NotImplementedError


class TestCamera:
    def _play(self, monkeypatch: pytest.MonkeyPatch, after: Callable[[Any], Any]) -> tuple[Any, list[str], Source]:
        kind = type("Fake", (FakeCapture,), {"after": after, "opened": 0, "released": 0})
        monkeypatch.setattr(camera, "_opencv", lambda: kind)
        source = Camera("0", Connecting(timeout_s=0.5, reconnect=1))
        frames, news, _ = played(source)
        assert len(frames) > 20
        until(lambda: kind.released == kind.opened)  # type: ignore[attr-defined]
        return kind, news, source

    def test_failing_reads_open_it_again_and_then_it_gives_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kind, news, source = self._play(monkeypatch, lambda self: (False, None))
        assert kind.opened == 2
        assert news[0] == "camera 0: 3 reads in a row failed; connecting again"
        assert news[-1] == "camera 0: 3 reads in a row failed; gave up"
        assert source.report.ended_early is not None

    def test_a_read_that_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def after(self: Any) -> Any:
            raise RuntimeError("USB\nhas gone")

        _, news, _ = self._play(monkeypatch, after)
        assert news[-1] == r"camera 0: USB\nhas gone; gave up"

    def test_a_read_that_blocks_is_left_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        free = threading.Event()

        def after(self: Any) -> Any:
            free.wait(DEADLINE_S)
            return False, None

        kind = type("Fake", (FakeCapture,), {"after": after, "opened": 0, "released": 0})
        monkeypatch.setattr(camera, "_opencv", lambda: kind)
        _, news, pulses = played(Camera("0", Connecting(timeout_s=0.5, reconnect=1)))
        assert news[-1] == "camera 0: no picture came within 0.5 s; gave up"
        assert "stalled" in {pulse.state for pulse in pulses}
        free.set()
        until(lambda: kind.released == kind.opened == 2)  # type: ignore[attr-defined]

    def test_the_same_picture_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin_s = time.monotonic()

        def after(self: Any) -> Any:
            return (True, grey(3)) if time.monotonic() - begin_s < 2 else (False, None)

        _, news, _ = self._play(monkeypatch, after)
        assert any("is it frozen?" in text for text in news)

    def test_whoever_hears_that_there_is_no_camera_finds_opencv_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Missing(FakeCapture):
            def isOpened(self) -> bool:  # noqa: N802
                return False

            def release(self) -> None:
                time.sleep(0.2)
                super().release()

        monkeypatch.setattr(camera, "_opencv", lambda: Missing)
        with pytest.raises(SourceError, match="there is no camera 0"):
            Camera("0", Connecting(reconnect=0))
        assert Missing.released == 1  # Python may end now

    @needs_opencv
    def test_opencv_reads_a_file_in_a_cameras_place(self, tmp_path: Path) -> None:
        path = clip(tmp_path / "camera.mkv", steady(100))
        source = Camera(str(path), Connecting(reconnect=1))
        assert (source.info.width, source.info.height, source.info.is_live) == (64, 48, True)
        frames, news, _ = played(source)
        seen = numbers(frames)
        assert {99, 50} <= set(seen)
        assert news[-1].endswith("3 reads in a row failed; gave up")

    @needs_opencv
    def test_an_index_that_does_not_exist_names_those_that_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self._nodes(tmp_path, monkeypatch)
        with pytest.raises(SourceError) as caught:
            open_source("99")
        assert caught.value.exit_code == 3
        assert caught.value.message == "there is no camera 99, or something else uses it"
        assert caught.value.hint == "these are here: 0 (Front: Cam), 2 (Desk Cam)"
        assert capfd.readouterr().err == ""

    @needs_opencv
    def test_by_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._nodes(tmp_path, monkeypatch)
        assert cameras.find_camera("Desk Cam").index == 2
        assert cameras.find_camera("front").device == "/dev/video0"
        for name in ("cam", "garden"):
            with pytest.raises(SourceError, match="cameras are called"):
                open_source(f"camera:{name}")

    @staticmethod
    def _nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number, name, index in ((2, "Desk Cam", 0), (0, "Front: Cam", 0), (1, "Front: Cam", 1)):
            node = folder / f"video{number}"
            node.mkdir()
            (node / "name").write_text(f"{name}\n")
            (node / "index").write_text(f"{index}\n")
        monkeypatch.setattr(cameras, "_NODES", folder)
        monkeypatch.setattr(cameras, "can_list_cameras", lambda: True)

    @pytest.mark.parametrize(
        ("error", "message", "hint"),
        [
            (ModuleNotFoundError("No module named 'cv2'"), "OpenCV is not installed", "pip install opencv-python"),
            (
                ImportError("libGL.so.1: cannot open shared object file: No such file or directory"),
                "the system library libGL.so.1 is missing",
                "install the package libgl1",
            ),
            (ImportError("numpy.core is too old"), "OpenCV cannot be loaded: numpy.core is too old", "pip install"),
        ],
    )
    def test_an_opencv_that_cannot_be_imported(
        self, monkeypatch: pytest.MonkeyPatch, error: ImportError, message: str, hint: str
    ) -> None:
        real = builtins.__import__

        def broken(name: str, *arguments: Any, **keywords: Any) -> Any:
            if name == "cv2":
                raise error
            return real(name, *arguments, **keywords)

        monkeypatch.setattr(builtins, "__import__", broken)
        with pytest.raises(SourceError) as caught:
            open_source("0")
        assert message in caught.value.message
        assert hint in caught.value.hint
