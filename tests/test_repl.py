"""The prompt in a real terminal, while a film plays."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.errors import UsageError
from hermes.sessions import SessionStore
from hermes.tiny.clip import write_clip
from hermes.tiny.world import RandomSource, make_video
from hermes_cli.contents import contents_table
from hermes_cli.repl import slash
from hermes_cli.transport import Transport
from tests.terminal import Terminal

MEMORY = ("-m", "tiny", "--chunk", "4", "--budget", "24")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 seconds of the embedded model's world."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    write_clip(make_video(16, RandomSource(7)), path, size=96)
    return path


def test_questions_and_commands_are_taken_while_the_film_plays(film: Path) -> None:
    with Terminal("watch", film, *MEMORY) as terminal:
        terminal.wait_for(r"hermes 00:00:15 >>> ")
        terminal.send("What is on screen now?\r")
        assert re.search(r">>> What is on screen now\?\n[A-Z].*\.\n", terminal.wait_for(r"drew on 00:"))
        terminal.send("/at 00:03 What is on screen now?\r")
        terminal.wait_for(r"/at 00:03 What is on screen now\?\n[A-Z].*\.\n")
        terminal.send("/nonsense\r")
        terminal.wait_for(r"error: unknown command '/nonsense'\nhint: type /\? for help")
        terminal.send("/set temperature lots\r")
        terminal.wait_for("'lots' is no value of temperature")
        terminal.send('"""What is\nthere?\n"""\r')
        terminal.wait_for(r"(drew on[\s\S]*){3}>>> ask")
        terminal.send("half a question")
        terminal.wait_for(">>> half a question")
        terminal.send("\x03")
        terminal.wait_for(">>> ask")
        terminal.send("\x03")
        terminal.wait_for(r"Use Ctrl\+D or /bye to exit\.")
        terminal.send("/step\r")  # something in between, so that this is the first Ctrl-C again
        terminal.wait_for(r"/step\n")
        terminal.send("\x03")
        terminal.wait_for(r"exit\.[\s\S]*exit\.")
        terminal.send("/bye\r")
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.text
    answers = SessionStore().latest().log().answers
    assert [(record["at"], record["remembered"]) for record in answers] == [(3.0, False), (15.0, True), (15.0, True)]


def test_what_is_typed_while_the_film_goes_on_is_not_torn(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--fps", "25") as terminal:
        terminal.wait_for(r">>> [\s\S]*tokens held per layer: \d")  # before the first frame there is nothing to ask
        question = "What color was the circle that was there at the very beginning?"
        for character in question:
            terminal.send(character)
        terminal.wait_for(re.escape(f">>> {question}"))
        terminal.send("\r")
        terminal.wait_for(r"drew on")
        assert question in terminal.text
        terminal.send("\x04")
        assert terminal.wait_for_end() == 0


def test_help_folds_within_its_column(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--panel", "off", columns=60, rows=60) as terminal:
        terminal.wait_for(r"hermes 00:00:15 >>> ask")
        terminal.send("/?\r")
        text = terminal.wait_for(r"Single keys[\s\S]*>>> ask")
        found = re.search(r"\n(/seek TIME +)move the video:[^\n]*\n( +)\S", text)
        assert found is not None, text
        assert len(found[1]) == len(found[2])
        assert re.search(r"\n/show model\|source\|settings\|prompt  what", text)
        terminal.send("/show settings\r")
        terminal.wait_for(r"\nbudget +24\n[\s\S]*\ntrigger_includes_prefix  ")


def test_answers_that_are_written_elsewhere_are_all_that_is_written_there(film: Path, tmp_path: Path) -> None:
    with Terminal(
        "watch", film, *MEMORY, "--every", "5s What is on screen now?", output=tmp_path / "answers.txt"
    ) as terminal:
        assert terminal.wait_for_end() == 0
        assert "16 frames in 4 chunks" in terminal.text
    lines = (tmp_path / "answers.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert all(line.endswith(".") and line.isascii() for line in lines)


def test_single_keys_move_the_film_while_the_line_is_empty(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--speed", "2") as terminal:
        terminal.wait_for(r"hermes 00:00:0[2-9] >>> ")
        terminal.send(" ")
        held = re.search(r"held at 00:00:(\d\d)", terminal.wait_for("held at 00:00:"))
        assert held is not None
        at_s = int(held[1])
        terminal.send(".")
        terminal.wait_for(rf"hermes 00:00:{at_s + 1:02} >>> ask")
        terminal.send("\x1b[C")
        terminal.wait_for(rf"/seek \+5s\n[\s\S]*00:00:{at_s + 1:02} to 00:00:{at_s + 6:02} is skipped and not seen")
        terminal.wait_for(rf"hermes 00:00:{at_s + 6:02} >>> ask[\s\S]*00:00:{at_s + 6:02} / 00:00:16")  # its frame is seen
        terminal.send("\x1b[D")
        terminal.wait_for(rf"/seek -5s\n[\s\S]*back at 00:00:{at_s + 1:02}")
        terminal.send("]")
        terminal.wait_for(r"speed 2\.20x")
        terminal.send("?")
        terminal.wait_for(r"/\? shortcuts")
        terminal.send("q .[?")  # a line that has begun takes them all
        terminal.wait_for(r">>> q \.\[\?")
        terminal.send("\x03")
        terminal.wait_for(r">>> ask")
        terminal.send("/step 2\r")
        terminal.wait_for(rf"hermes 00:00:{at_s + 3:02} >>> ask")
        terminal.send("/at 00:15 What is there?\r")
        terminal.wait_for(r"has not been played yet\nhint: ask without /at about now\n[\s\S]*>>> ask")
        terminal.send("\x1b[A")  # the keys are no lines that were typed
        terminal.wait_for(r">>> /at 00:15 What is there\?")
        terminal.send("\x03\x04")
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.text


def test_a_film_can_be_moved_while_it_plays_and_after_its_end(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--speed", "1") as terminal:
        terminal.wait_for(r"hermes 00:00:0[1-4] >>> ")
        terminal.send("/seek 00:12\r")
        terminal.wait_for(r"to 00:00:12 is skipped")
        terminal.wait_for(r"hermes 00:00:1[3-5] >>> ")
        terminal.send("/seek 00:07\r")
        terminal.wait_for(r"back at 00:00:07")
        terminal.send("/speed fast\r")
        terminal.wait_for(r"hermes 00:00:15 >>> ")
        terminal.send("/seek 50%\r")
        terminal.wait_for(r"back at 00:00:08[\s\S]*hermes 00:00:15 >>> ")
        terminal.send("/at 00:05 What is there?\r")
        terminal.wait_for(r"00:00:05.000 was not seen: 00:00:0\d.000 to 00:00:07.000 was skipped")
        terminal.send("/save talk\r")
        terminal.wait_for(r"named talk: saved up to")
        terminal.send("/cache layer 0\r")
        terminal.wait_for(r"layer +role +tokens +summary +positions +oldest +median\n +0 +shallow +\d+/24 ")
        terminal.send("/reset\r")
        terminal.wait_for(r"are forgotten; the video goes on at 00:00:15 as session")
        terminal.send("/seek 00:99\r/load\r/step none\r")
        terminal.wait_for(r"'00:99' is not a time[\s\S]*no session named[\s\S]*'none' is no number of frames")
        terminal.send("/load talk\r")
        terminal.wait_for(r"\(talk\) goes on at")
        terminal.send("/bye\r")
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.text
    assert [session.info.name for session in SessionStore().sessions()] == [None, "talk"]


def test_what_is_refused_after_the_end_changes_and_tells_nothing_else(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--record", "--panel", "compact") as terminal:
        terminal.wait_for(r"hermes 00:00:15 >>> [\s\S]*ended")
        terminal.send("/at end What is on screen now?\r")
        terminal.wait_for(r"/at end What is on screen now\?\n[A-Z].*\.\n")
        terminal.send("/load nothing\r")
        terminal.wait_for(r"error: there is no session 'nothing'")
        terminal.send("/seek 00:05\r")
        terminal.wait_for(r"error: with --record the video goes only forwards\nhint: /at TIME QUESTION asks")
        terminal.send("/status\r")
        terminal.wait_for(r"/status\n[\s\S]*24 of 24[\s\S]*>>> ask")
        terminal.send("/bye\r")
        assert terminal.wait_for_end() == 0
        assert terminal.text.count("16 frames in 4 chunks") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_the_terminal_is_whole_again_after_a_signal(film: Path, number: signal.Signals, code: int) -> None:
    with Terminal("watch", film, *MEMORY) as terminal:
        terminal.wait_for(r"hermes 00:00:15 >>> ")
        if number == signal.SIGINT:
            terminal.send("\x03\x03")
        else:
            terminal.process.send_signal(number)
        assert terminal.wait_for_end() == code
        assert terminal.modes == terminal.modes_before
        shown, hidden = terminal.written.rfind(b"\x1b[?25h"), terminal.written.rfind(b"\x1b[?25l")
        assert shown > hidden or hidden == -1


def test_a_cancelled_answer_is_no_longer_under_way(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--temperature", "30", "--panel", "compact") as terminal:
        terminal.wait_for(r"ended")
        terminal.send("Describe the scene.\r")
        terminal.wait_for(r"Describe the scene\.\n.+")
        terminal.send("\x03")
        terminal.wait_for(r"cancelled|drew on")
        terminal.send("/status\r")
        terminal.wait_for(r"/status\n[\s\S]*ended")
        assert "answering" not in terminal.text.rpartition("/status")[2]


def test_a_full_disk_costs_what_it_would_have_kept_and_nothing_else(film: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("no other process can be given a limit")
    exported = tmp_path / "talk.srt"
    with Terminal("watch", film, *MEMORY, "--panel", "off") as terminal:
        terminal.wait_for(r"hermes 00:00:15 >>> ")
        terminal.send("What is on screen now?\r")
        terminal.wait_for("drew on")
        resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        terminal.send("/reset\r")
        terminal.wait_for(r"/reset\n[\s\S]*error: cannot write: .*\nhint: free some space")
        terminal.send(f"/export srt {exported}\r")
        terminal.wait_for(r"/export srt [\s\S]*error: cannot write: .*\nhint: free some space")
        terminal.send("What is there?\r")
        terminal.wait_for(r"What is there\?\n[A-Z].*\.\n[\s\S]*warning: answers are no longer saved")
        terminal.send("/bye\r")
        assert terminal.wait_for_end() == 0
        assert "exception" not in terminal.text.lower()
    assert not exported.exists()
    assert len(SessionStore().latest().log().answers) == 1


def test_what_is_too_slow_or_nowhere_fails_a_command_and_not_the_run(film: Path) -> None:
    with Terminal("watch", film, *MEMORY, "--panel", "off", "--speed", "1e-300") as terminal:
        terminal.wait_for(r"hermes 00:00:00 >>> ask")
        terminal.send("/speed fast\r")
        terminal.wait_for(r"hermes 00:00:15 >>> ask")
        terminal.send(f"/export srt {300 * 'n'}\r")
        terminal.wait_for(r"cannot write\s+n[\s\S]*hint: check its name")
        terminal.send("/export srt ~nobody-of-that-name/talk.srt\r")
        terminal.wait_for(r"no home folder for ~nobody[\s\S]*hint: write out")
        terminal.send("\x04")
        assert terminal.wait_for_end() == 0


def test_a_number_with_thousands_of_digits_is_refused_as_any_other() -> None:
    repl: Any = SimpleNamespace(transport=Transport())
    player: Any = SimpleNamespace(engine=SimpleNamespace(model=SimpleNamespace(layers=3)))
    with pytest.raises(UsageError, match="no number of frames"):
        slash.run(repl, f"/step {5000 * '1'}")
    with pytest.raises(UsageError, match="in the memory"):
        contents_table(player, f"layer {5000 * '1'}")
