"""What holds a film back: its pace, a pause, one frame at a time, the end."""

from __future__ import annotations

import math
import threading

import pytest

from hermes_cli.transport import Transport


class Film(threading.Thread):
    """Takes frames of given times as the transport lets it, until it says stop."""

    def __init__(self, transport: Transport, times_s: list[float]) -> None:
        super().__init__(daemon=True)
        self._transport, self._times_s = transport, times_s
        self.taken: list[float] = []
        self.moved = threading.Condition()

    def run(self) -> None:
        for time_s in self._times_s:
            if not self._transport.wait(time_s):
                return
            with self.moved:
                self.taken.append(time_s)
                self.moved.notify_all()

    def wait_for(self, count: int) -> None:
        with self.moved:
            assert self.moved.wait_for(lambda: len(self.taken) >= count, timeout=30)


def test_a_film_as_fast_as_possible_waits_for_nothing() -> None:
    film = Film(Transport(), [0.0, 1e6, 2e6])
    film.run()
    assert film.taken == [0.0, 1e6, 2e6]


def test_frames_are_due_by_their_times_and_the_speed() -> None:
    now_s = 100.0
    transport = Transport(speed=2.0, clock=lambda: now_s)
    assert transport.wait(10.0)  # the first frame is due at once, and the pace counts from it
    due = [transport._due_s(time_s) for time_s in (10.0, 11.0, 14.0)]
    assert due == [100.0, 100.5, 102.0]
    transport.set_speed(0.5)  # from here on
    now_s = 200.0
    assert transport.wait(14.0)
    assert transport._due_s(15.0) == 202.0


def test_a_held_film_takes_single_steps_and_then_goes_on() -> None:
    transport = Transport()
    transport.pause()
    film = Film(transport, [float(number) for number in range(10)])
    film.start()
    for count in (1, 2, 3):
        transport.step()
        film.wait_for(count)
    assert (film.taken, transport.paused) == ([0.0, 1.0, 2.0], True)
    transport.play()
    film.join(timeout=30)
    assert len(film.taken) == 10


@pytest.mark.parametrize("hold", [lambda transport: transport.pause(), lambda transport: transport.set_speed(1e-6)])
def test_a_film_that_waits_can_be_ended(hold: object) -> None:
    transport = Transport(speed=1e-6)
    assert transport.wait(0.0)
    hold(transport)  # type: ignore[operator]
    film = Film(transport, [5.0, 6.0])
    film.start()
    transport.stop()
    film.join(timeout=30)
    assert not film.is_alive()
    assert not transport.wait(7.0)


def test_several_steps_and_a_film_that_is_left_and_played_on() -> None:
    transport = Transport()
    transport.step(3)
    film = Film(transport, [float(number) for number in range(10)])
    film.start()
    film.wait_for(3)
    transport.interrupt()
    film.join(timeout=30)
    assert (film.taken, transport.stopped) == ([0.0, 1.0, 2.0], True)
    transport.resume()
    assert (transport.paused, transport.stopped) == (True, False)
    on = Film(transport, [7.0, 8.0])
    on.start()
    transport.play()
    on.join(timeout=30)
    assert on.taken == [7.0, 8.0]
    transport.stop()
    transport.resume()
    assert transport.stopped  # for good


def test_the_pace_changes_in_steps() -> None:
    transport = Transport()
    transport.change_speed(1.1)
    assert math.isinf(transport.speed)
    transport.change_speed(1 / 1.1)
    assert transport.speed == 1.0
    transport.change_speed(1.1)
    assert transport.speed == pytest.approx(1.1)
    for _ in range(100):
        transport.change_speed(0.5)
    assert transport.speed == 0.01


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match=str(speed)):
        Transport().set_speed(speed)
