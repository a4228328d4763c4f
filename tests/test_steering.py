"""Moving a run that is saved: what was skipped or played again never comes back as something else. Asking while it plays."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from hermes.config import MemoryConfig, Sampling
from hermes.engine import StreamEngine
from hermes.errors import UsageError
from hermes.events import Answer, AnswerDelta, ChunkEncoded
from hermes.models import VideoModel
from hermes.policies import make_policy
from hermes.sessions import Session, SessionStore
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.answers import Answers
from hermes_cli.app import main
from hermes_cli.choosing import Choice
from hermes_cli.contents import contents_table
from hermes_cli.film import Film
from hermes_cli.loading import load_player
from hermes_cli.options import (
    AnswerOptions,
    ConnectingOptions,
    MemoryOptions,
    MethodOptions,
    ModelOptions,
    OutputOptions,
    PlayingOptions,
    SavingOptions,
    Settings,
)
from hermes_cli.player import Asking, Event, NotBegunError, Player, Seen
from hermes_cli.questions import TimedQuestion
from hermes_cli.recall import reaches, replayed_film
from hermes_cli.repl.footer import Footer
from hermes_cli.repl.moves import Moves
from hermes_cli.screen import Screen
from hermes_cli.serving import Host, kept
from hermes_cli.standing import StandingQuestion
from hermes_cli.viewing import Viewing
from tests.clips import clip, steady
from tests.test_engine import assert_same_memory, memory_of

FPS = 10.0  # all 60 frames of the film are sampled
SAVED, QUIET = SavingOptions(), OutputOptions(quiet=True)
SETTINGS = Settings(
    PlayingOptions(ConnectingOptions()), ModelOptions(), MemoryOptions(MethodOptions()), AnswerOptions(), OutputOptions()
)


class Run:
    """A film being watched, as the prompt has it."""

    def __init__(self, watched: Viewing, host: Host | None) -> None:
        self.watched, self._host = watched, host
        self.moves = Moves(watched, host, Footer(watched.player, OutputOptions()))
        self.seen: list[float] = []
        watched.drawn = lambda event: self.seen.append(event.time_s) if isinstance(event, Seen) else None

    @property
    def host(self) -> Host:
        assert self._host is not None
        return self._host

    @property
    def engine(self) -> StreamEngine:
        return self.watched.player.engine

    def play(self, to_s: float, question: str = "What is this?") -> None:
        """Play up to a moment and ask there."""
        self.watched.show(self.watched.player.play([TimedQuestion(to_s, question)], to_the_end=False))

    def then(self, at: str) -> StreamEngine:
        """The memory that a question about a moment is asked."""
        past, events = self.host.then(self.watched.player, "What is this?", at)
        assert any(isinstance(event, Answer) for event in events)
        return past.engine


Watch = Callable[..., AbstractContextManager[Run]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return clip(tmp_path / "film.mp4", steady(60))


@contextmanager
def watching(player: Player, source: str, saving: SavingOptions = SAVED, settings: Settings = SETTINGS) -> Iterator[Run]:
    watched = Viewing(player, Answers(), Screen(QUIET))
    with kept(watched, saving, settings, source) as host:
        yield Run(watched, host)


@pytest.fixture
def watch(model: VideoModel, path: Path) -> Watch:
    @contextmanager
    def start(film: Path = path, saving: SavingOptions = SAVED, budget: int = 36) -> Iterator[Run]:
        config = MemoryConfig.preset("paper", budget=budget, chunk_frames=4, position_room=128, history_tokens=16)
        engine = StreamEngine(model, config, make_policy("hermes", config))
        choice = Choice("tiny", "named", "named by a test")
        player = Player(Film.open(str(film), FPS, "start", "end"), engine, Sampling(max_new_tokens=4), "hermes", choice)
        with watching(player, str(film), saving) as run:
            yield run

    return start


def assert_same(left: StreamEngine, right: StreamEngine) -> None:
    """That both have seen and remembered the same."""
    assert_same_memory(memory_of(left), memory_of(right))
    assert left.frame_times_s == right.frame_times_s
    assert left.frames_seen == right.frames_seen


def offline(session: Session) -> Session:
    """The session as another process finds it."""
    return SessionStore().find(session.info.id)


def test_what_is_skipped_is_not_seen_now_or_later(watch: Watch) -> None:
    with watch() as run:
        run.play(0.9)
        assert run.moves.seek(run.moves.moment_s("+2s")).startswith("00:00:00 to 00:00:02 is skipped")
        assert run.moves.position_s == pytest.approx(2.9)
        run.play(3.4)
        assert run.seen == pytest.approx([*(n / 10 for n in range(10)), *(n / 10 for n in range(29, 35))])
        assert_same(run.then("3.4"), run.engine)
        assert run.then("0.5").now_s == 0.5
        with pytest.raises(UsageError, match=r"00:00:02\.000 was not seen: 00:00:00\.900 to 00:00:02\.900 was skipped"):
            run.then("2")
    later = offline(run.host.session)
    with pytest.raises(UsageError, match="was skipped"):
        replayed_film(later).check_seen(2.0)
    times_s = {time_s for saved in later.checkpoints for time_s in later.load(saved).frame_times_s}
    assert times_s <= set(run.seen)
    before = later.newest_checkpoint(2.0)
    assert before is not None
    assert before.frames == 8  # the last whole chunk before it


def test_going_back_is_as_if_the_rest_had_never_been(watch: Watch) -> None:
    with watch() as straight:
        straight.play(1.0, "What is there?")
        straight.play(2.0)
    with watch() as run:
        run.play(1.0, "What is there?")
        run.play(1.6, "How many are there?")
        run.play(4.0, "What color is it?")
        assert run.moves.seek(run.moves.moment_s("1.3")).startswith("back at 00:00:01")
        assert (run.engine.now_s, run.watched.tally.at) == (1.3, 1.3)
        assert all(checkpoint.time_s <= 1.3 for checkpoint in run.host.session.checkpoints)
        with pytest.raises(UsageError, match="has not been played yet"):
            run.then("3")
        run.moves.seek(1.25)  # between two frames, of which none is skipped
        assert run.engine.now_s == 1.2
        run.seen.clear()
        run.play(2.0)
        assert run.seen == pytest.approx([n / 10 for n in range(13, 21)])
        assert_same(run.engine, straight.engine)
        assert_same(run.then("2.0"), straight.engine)
        assert run.then("1.23").now_s == 1.2
        assert run.engine.last_exchange == straight.engine.last_exchange


def test_after_the_end_of_the_film_is_its_last_frame(watch: Watch) -> None:
    with watch() as run:
        run.play(2.0, "What is there?")
        with pytest.raises(UsageError, match="end has not been played yet"):
            run.then("end")
        run.watched.play_on(())
        exchange = run.engine.last_exchange
        for at, about_s in (("end", 5.9), ("5.95", 5.95), ("100%", 6.0), ("5.9", 5.9)):
            past, events = run.host.then(run.watched.player, "What is this?", at)
            (asking,) = (event for event in events if isinstance(event, Asking))
            assert (asking.at_s, asking.frame_s, asking.frames) == (about_s, 5.9, 60)
            assert past.engine.last_exchange == exchange  # a question about a moment colours nothing
        run.moves.seek(1.0)
        with pytest.raises(UsageError, match=r"5\.95 has not been played yet"):
            run.then("5.95")


def test_a_stretch_that_was_skipped_can_be_seen_after_all(watch: Watch) -> None:
    with watch() as run:
        run.play(0.5)
        run.moves.seek(run.moves.moment_s("50%"))
        run.play(3.4)
        run.moves.seek(run.moves.moment_s("1.0"))
        run.seen.clear()
        run.play(1.4)
        assert run.seen == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4])
        assert_same(run.then("1.4"), run.engine)
        run.moves.seek(run.moves.moment_s("end"))
        run.seen.clear()
        run.watched.play_on(())
        assert run.seen == [5.9]


def test_only_a_moment_that_is_skipped_to_is_not_in_memory_yet(watch: Watch) -> None:
    with watch() as run:
        assert run.moves.is_ahead  # nothing is
        run.play(1.0)
        assert not run.moves.is_ahead
        run.moves.seek(3.0)
        assert run.moves.is_ahead
        run.moves.seek(0.5)
        assert not run.moves.is_ahead
        run.moves.reset()
        run.play(1.0)
        assert run.moves.seek(0.0) == "back at 00:00:00, with the memory of that moment, where this session begins"


def test_there_is_no_way_back_without_a_session_or_in_a_recording(watch: Watch) -> None:
    for saving, reason in ((SavingOptions(save=False), "not saved"), (SavingOptions(record=True), "only forwards")):
        with watch(saving=saving) as run:
            run.play(2.0)
            with pytest.raises(UsageError, match=reason):
                run.moves.seek(1.0)
            run.moves.seek(4.0)
            run.play(4.4)
            assert (run.engine.now_s, run.engine.frames_seen) == (4.4, 26)


def test_a_reset_begins_a_session_of_its_own(watch: Watch) -> None:
    with watch() as run:
        run.play(2.0)
        first = run.host.session
        run.moves.reset()
        assert (run.engine.frames_seen, run.engine.last_exchange, run.moves.position_s) == (0, None, 2.0)
        run.play(3.0)
        assert_same(run.then("3.0"), run.engine)
        assert run.host.session.info.id != first.info.id
    ended, second = offline(first), offline(run.host.session)
    assert (ended.last_s, second.last_s, ended.is_live) == (2.0, 3.0, False)
    assert next(replayed_film(second).source.frames(FPS, second.info.settings["start"])).time_s == 2.0
    assert all(reaches(session, replayed_film(session), math.inf) for session in (ended, second))


def test_a_loaded_session_goes_on(watch: Watch) -> None:
    with watch() as earlier:
        earlier.play(1.8)
        assert "named talk: saved up to 00:00:01.500" in earlier.moves.save("talk")
    with watch() as run:
        run.play(4.0)
        mine = run.host.session
        assert run.moves.load("talk") == f"session {earlier.host.session.info.id} (talk) goes on at 00:00:01.500"
        run.seen.clear()
        run.play(2.5)
        assert run.seen[0] == 1.6
        assert_same(run.then("2.5"), run.engine)
    assert offline(mine).last_s == 4.0
    assert offline(earlier.host.session).last_s == 2.5


def test_what_does_not_fit_is_not_loaded(watch: Watch, tmp_path: Path) -> None:
    def save(name: str, run: Run) -> None:
        run.play(1.0)
        run.moves.save(name)

    with watch(budget=40) as other:
        save("other budget", other)
    with watch(film=clip(tmp_path / "other.mp4", steady(20))) as other:
        save("other film", other)
    with watch() as run:
        save("mine", run)
        before = run.host.session.info.id
        wrong = {
            "other budget": "another budget",
            "other film": "is of",
            "mine": "is being watched",
            "none": "there is no session",
        }
        for name, reason in wrong.items():
            with pytest.raises(UsageError, match=reason):
                run.moves.load(name)
        assert (run.host.session.info.id, run.engine.now_s) == (before, 1.0)


def test_a_moved_session_goes_on_and_knows_what_it_saw(watch: Watch, path: Path) -> None:
    with watch() as run:
        run.play(0.9)
        run.moves.seek(3.0)
        run.play(3.4)
    with watch() as again:
        again.moves.load(run.host.session.info.id)
        again.play(4.0)
        assert_same(again.then("4.0"), again.engine)
        assert again.then("3.2").now_s == pytest.approx(3.2)


def test_what_was_skipped_is_skipped_when_a_session_goes_on_from_before(watch: Watch) -> None:
    with watch() as run:
        run.play(0.9)
        run.moves.seek(3.0)
        run.play(3.4)
    for checkpoint in run.host.session.checkpoints:
        if checkpoint.frames > 8:  # as after a kill
            checkpoint.path.unlink()
    with watch() as again:
        again.moves.load(run.host.session.info.id)
        again.play(3.4)
        assert_same(again.engine, run.engine)
        assert_same(again.then("3.4"), again.engine)


def test_another_process_answers_as_the_run_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a question of a stretch that was left again has coloured the memory there, and is forgotten since."""

    def ask(at_s: float, question: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["ask", "--session", run.host.session.info.id, "--at", f"{at_s:g}s", question])
        return code, *capsys.readouterr()

    monkeypatch.setattr(sys, "stdin", None)
    path = tmp_path / "world.mp4"
    write_clip(make_video(16, RandomSource(7)), path, size=96)
    config = MemoryConfig.preset("paper", budget=24, chunk_frames=4)
    settings = replace(SETTINGS, model=ModelOptions(model="tiny"))
    player = load_player(Film.open(str(path), 1.0, "start", "end"), config, Sampling(), settings, Screen(QUIET))
    with watching(player, str(path), settings=settings) as run:
        run.play(3, "What color was the circle?")
        run.play(5, "What did you see first?")
        run.moves.seek(8)
        run.play(10, "How many are there?")
        assert not run.host.session.log().answers[0].get("left")
        run.moves.seek(4)
        run.play(5, "What is on screen now?")
        run.watched.show(run.watched.player.forget())
        run.play(7, "What did you see first?")
        run.moves.seek(9)
        run.play(14, "What color was the circle?")
        run.play(15, "What is on screen now?")
    log = offline(run.host.session).log()
    assert [(record["at"], record.get("left", False)) for record in log if record["type"] == "answer"] == [
        (3, False), (5, True), (10, True), (5, False), (7, False), (14, False), (15, False),
    ]  # fmt: skip
    asked = [record for record in log.answers if not record.get("left")]
    for with_memories in (True, False):  # from saved memories, and from the start
        for record in asked:
            code, out, told = ask(record["at"], record["question"])
            assert (code, out.strip()) == (0, record["answer"].strip()), told
        for checkpoint in run.host.session.checkpoints if with_memories else ():
            checkpoint.path.unlink()
    code, out, told = ask(8, "What is this?")
    assert (code, out) == (2, "")
    assert "00:00:08.000 was not seen: 00:00:07.000 to 00:00:09.000 was skipped" in told.splitlines()[0]
    assert main(["watch", "--session", run.host.session.info.id, "--ask", "8s What is this?"]) == 2
    capsys.readouterr()
    main(["sessions", "show", run.host.session.info.id])
    assert capsys.readouterr().out.count("left again") == 2


def test_what_was_asked_while_frames_waited_does_not_colour_another_course(watch: Watch) -> None:
    with watch() as straight:
        straight.play(2.0)
    with watch() as run:
        run.play(1.4, "What is there?")  # 15 frames: three wait, and the memory is saved without them
        run.moves.seek(1.3)
        run.play(2.0)
        assert_same(run.engine, straight.engine)
        assert_same(run.then("2.0"), straight.engine)


def test_a_conversation_is_forgotten_again_when_going_back(watch: Watch) -> None:
    with watch() as run:
        run.play(1.0, "What is there?")
        run.watched.show(run.watched.player.forget())
        run.play(4.0)
        past = run.then("3.0")
        assert past.last_exchange is not None
        run.moves.seek(2.0)
        assert run.engine.last_exchange is None
        run.play(3.5, "How many are there?")
        run.play(4.0)
        run.moves.seek(3.5)  # the question is still to be repeated
        run.watched.show(run.watched.player.forget())
        run.watched.show(run.watched.player.play([]))
        assert run.engine.last_exchange is None
        assert_same(run.then("5.9"), run.engine)


def test_a_standing_question_is_asked_again_and_not_about_what_is_skipped(watch: Watch) -> None:
    moments: list[float] = []
    with watch() as run:
        run.watched.drawn = lambda event: moments.append(event.at_s) if isinstance(event, Asking) else None
        run.watched.player = replace(run.watched.player, standing=(StandingQuestion(0.5, "What is there?"),))

        def play(to_s: float) -> list[float]:
            moments.clear()
            run.play(to_s)
            return moments[:-1]

        assert play(1.8) == [0.5, 1.0, 1.5]
        run.moves.seek(0.7)
        assert play(1.3) == [1.0]
        run.moves.seek(3.3)
        assert play(4.2) == [3.5, 4.0]


def test_the_film_and_a_question_do_not_wait_for_each_other(watch: Watch) -> None:
    with watch() as run:
        keep, chunks = run.watched.saved, list[Event]()
        run.watched.saved = lambda event: chunks.append(event) if isinstance(event, ChunkEncoded) else None
        run.play(0.5)
        with closing(run.watched.player.ask("What is this?")) as events:
            asking = next(events)  # from here to the end of the answer it has its turn
            film = threading.Thread(target=keep, args=(chunks[0],), daemon=True)
            film.start()
            film.join(0.5)
            assert film.is_alive()  # the memory that it wants to save is in use
            question = threading.Thread(target=lambda: [*map(keep, chain([asking], events))], daemon=True)
            question.start()
            question.join(60)
            assert not question.is_alive()
        film.join(60)
        assert not film.is_alive()
        assert [answer["frames"] for answer in run.host.session.log().answers] == [6]


def test_an_answer_is_not_mixed_with_one_that_the_film_tells_meanwhile(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(question: str, *pieces: str, within: Callable[[], None] = lambda: None) -> Generator[Event, None, None]:
        yield Asking(question, 0.5, 0.5, 6, (36,), 60.0)
        for piece in pieces:
            yield AnswerDelta(piece)
            within()
        yield Answer(question, "".join(pieces), 0.5, "stop", 5, len(pieces), 1.0, 1.0)

    with watch(saving=SavingOptions(save=False)) as run:
        run.play(0.5)
        capsys.readouterr()
        run.watched.show(told("What is there?", "a red", " ring", within=lambda: run.watched.tell(told("Who?", "nobody"))))
        assert capsys.readouterr().out == "nobody\nnobody\na red ring\n"


def test_a_question_whose_turn_comes_after_everything_was_forgotten_is_refused(watch: Watch) -> None:
    with watch(saving=SavingOptions(save=False)) as run:
        empty = run.engine.snapshot()

        @contextmanager
        def forgetting() -> Iterator[None]:
            run.engine.restore(empty)
            yield

        player = replace(run.watched.player, turn=forgetting)
        run.play(0.5)
        with pytest.raises(NotBegunError, match="has not begun"):
            list(player.ask("What is there?"))
        for until_change in (False, True):
            run.play(0.5)
            assert not list(player._ask_standing(StandingQuestion(0.1, "What?", until_change), 0.65))


def test_only_the_end_of_the_film_is_told(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    with watch() as run:
        run.watched.screen = Screen(OutputOptions(progress="none"))
        run.watched.player.transport.interrupt()
        run.watched.play_on(())
        assert "frames in" not in capsys.readouterr().err
        run.watched.player.transport.resume()
        run.watched.play_on(())
        assert "60 frames in 15 chunks" in capsys.readouterr().err


def test_the_table_says_what_every_layer_holds(watch: Watch) -> None:
    chunks: list[ChunkEncoded] = []
    with watch() as run:
        run.watched.drawn = lambda event: chunks.append(event) if isinstance(event, ChunkEncoded) else None
        run.play(4.0)
        table = contents_table(run.watched.player).splitlines()
        one = contents_table(run.watched.player, "layer 1").splitlines()
        for wrong in ("layer 99", "layer x", "lots"):
            with pytest.raises(UsageError, match="in the memory"):
                contents_table(run.watched.player, wrong)
    newest = chunks[-1]
    assert one[1].split() == table[2].split()
    assert max(map(len, table)) < 80
    for number, line in enumerate(table[1:]):
        low, high = newest.positions[number]
        times = (newest.oldest_s[number], newest.median_s[number])
        told = ["-" if time_s is None else f"00:00:0{int(time_s)}" for time_s in times]
        held = f"{newest.visual_tokens[number]}/36"
        cells = line.split()
        assert cells[0] == f"{number}"
        assert cells[2:] == [held, f"{newest.summary_tokens[number]}", f"{low:.0f}-{high:.0f}", *told]
