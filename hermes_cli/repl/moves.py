"""Moving the film of a prompt: on, back, to an empty memory or to another session."""

from __future__ import annotations

import math
from dataclasses import replace

from hermes.errors import UsageError
from hermes.events import ChunkEncoded
from hermes.sessions import SessionStore
from hermes.sources.daemon import in_daemon
from hermes.sources.opening import printable
from hermes.timecode import Anchor, format_time, parse, resolve
from hermes_cli import steering
from hermes_cli.clock import clock
from hermes_cli.course import CutFilm, seek_record, skips_after
from hermes_cli.film import Film
from hermes_cli.repl.footer import Footer
from hermes_cli.serving import Host
from hermes_cli.viewing import Viewing

SAVE_NEXT_TIME = "leave --no-save out next time"
"""What to do about a run that keeps nothing."""


class Moves:
    """What moves the film, or swaps the memory. Every method returns what the user is told.

    Args:
        watched: what is watched. A film of its own, which is played from its start or not at all, must stand still for
            `seek`, `load` and `reset`; what is live goes on.
        host: keeps it as a session; None when nothing is saved.
        footer: shows it.
    """

    def __init__(self, watched: Viewing, host: Host | None, footer: Footer) -> None:
        self._watched, self._host, self._footer = watched, host, footer

    @property
    def is_live(self) -> bool:
        """Whether the source goes on by itself."""
        return self._watched.player.film.source.info.is_live

    @property
    def position_s(self) -> float:
        """Where the film is: at the newest frame that was seen, or at the end of what is skipped behind it."""
        player = self._watched.player
        now_s = player.engine.now_s
        begin_s = -math.inf if now_s is None else now_s
        skipped = [skip.until_s for skip in _cut(player.film).skips if skip.after_s == begin_s]
        return skipped[-1] if skipped else player.film.start_s if now_s is None else now_s

    @property
    def is_ahead(self) -> bool:
        """Whether the film stands at a moment that is not in memory yet."""
        now_s = self._watched.player.engine.now_s
        return now_s is None or self.position_s > now_s

    def moment_s(self, written: str) -> float:
        """A time as the user writes it, in seconds; what has a sign counts from where the film is.

        Raises:
            UsageError: the time is unreadable, or no moment of the film.
        """
        film, point = self._watched.player.film, parse(written)
        if point.anchor is Anchor.END:
            return self._last_s()
        info, position_s = film.source.info, self.position_s
        time_s = resolve(point, duration_s=info.duration_s, playhead_s=position_s, fps=film.fps, name=info.name)
        if point.anchor is Anchor.FORWARD and time_s >= (film.stop_s() or math.inf):
            return self._last_s()
        return film.moment(format_time(max(0.0, time_s)))  # raises where the film has ended by then

    def seek(self, to_s: float) -> str:
        """Go to a moment: what lies before it is skipped, or the memory of then comes back.

        Raises:
            UsageError: there is no way back.
            SourceError: the way back is damaged.
        """
        start_s = self._watched.player.film.start_s
        if to_s < start_s:
            return f"{self.seek(start_s)}, where this session begins"
        now_s = self._watched.player.engine.now_s
        return self._back(to_s) if now_s is not None and to_s < now_s else self._on(to_s)

    def save(self, name: str) -> str:
        """Save the memory as it is, and name the session; raises `UsageError` where nothing is saved."""
        if self._host is None:
            raise UsageError("this run is not saved", SAVE_NEXT_TIME)
        saved_s = steering.save(self._host, name or None)
        info = self._host.session.info
        called = f"session {info.id}" + (f", named {info.name}" if info.name else "")
        return f"{called}: " + ("no chunk is whole yet" if saved_s is None else f"saved up to {format_time(saved_s)}")

    def load(self, written: str) -> str:
        """Go on with another session of this source and model, from its newest memory; raises as `steering.load`."""
        if self.is_live:
            raise UsageError("the source is live: it cannot go back to another session", "hermes ask --session asks one")
        if self._host is None:
            raise UsageError(
                "this run is not saved, and a session would go on", "hermes watch -c --session goes on with one"
            )
        at_s = steering.load(self._host, SessionStore().find(written))
        self._show(None, anew=True)
        info = self._host.session.info
        return f"session {info.id}{f' ({printable(info.name)})' if info.name else ''} goes on at {format_time(at_s)}"

    def reset(self) -> str:
        """Play on from here with an empty memory, and as a new session; raises as `steering.begin_anew`."""
        player, at_s = self._watched.player, self.position_s
        if self._host is not None:
            steering.begin_anew(self._host, at_s)
        else:
            with player.turn():
                player.engine.restore(steering.empty_memory(player.engine))
                player.past.clear()
            film = player.film if self.is_live else replace(player.film, start_s=at_s)
            self._watched.player = replace(player, film=CutFilm.of(film, ()))
        self._show(None, anew=True)
        told = f"conversation and memory are forgotten; the video goes on at {clock(at_s)}"
        return told if self._host is None else f"{told} as session {self._host.session.info.id}"

    def _last_s(self) -> float:
        """The last moment at which a frame is taken."""
        film, now_s = self._watched.player.film, self._watched.player.engine.now_s
        length_s = float(in_daemon(film.source.measured_length).result())
        return max(min(length_s, film.end_s) - 1 / film.fps, now_s or 0.0)

    def _on(self, to_s: float) -> str:
        player, from_s = self._watched.player, self.position_s
        if self._host is not None:
            steering.skip(self._host, to_s)
        film = _cut(player.film)
        skips = skips_after(film.skips, seek_record(player.engine, to_s))
        self._watched.player = replace(player, film=replace(film, skips=skips))
        for question in player.standing:  # nothing is asked about what is skipped
            question.asked_s = to_s
        self._show(self._footer.chunk)
        if to_s <= from_s:
            return f"at {clock(to_s)}"
        return f"{clock(from_s)} to {clock(to_s)} is skipped and not seen; the memory stays"

    def _back(self, to_s: float) -> str:
        if self._host is None:
            raise UsageError("this run is not saved, so there is no way back", SAVE_NEXT_TIME)
        steering.check_way_back(self._host)
        chunk, film = None, _cut(self._watched.player.film)
        try:
            chunk = steering.go_back(self._host, to_s)
        finally:
            skips = self._host.skips
            self._watched.player = replace(self._watched.player, film=replace(film, skips=skips))
            self._show(chunk, anew=True)
        return f"back at {clock(self.position_s)}, with the memory of that moment"

    def _show(self, chunk: ChunkEncoded | None, anew: bool = False) -> None:
        """Let everybody know what is in memory now."""
        player, tally = self._watched.player, self._watched.tally
        engine = player.engine
        tally.at, tally.waiting = engine.now_s, engine.frames_seen - len(engine.frame_times_s)
        tally.visual_tokens = max(engine.visual_tokens)
        if anew:  # what is asked again and again starts again from here
            standing = tuple(replace(question, asked_s=engine.now_s or 0.0) for question in player.standing)
            self._watched.player = replace(player, standing=standing)
        self._footer.moved(self._watched.player, tally, chunk)


def _cut(film: Film) -> CutFilm:
    return film if isinstance(film, CutFilm) else CutFilm.of(film, ())
