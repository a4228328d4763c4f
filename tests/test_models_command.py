"""`hermes models`, and which model a run takes: what its name means, whether it is here and fits, how it is fetched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest

from hermes.catalog import CATALOG, SMALLEST, KnownModel, find
from hermes.errors import ModelError
from hermes.machine import Accelerator
from hermes.models import QUANTS
from hermes.tiny import checkpoint_folder
from hermes_cli import choosing, options
from hermes_cli.app import main
from hermes_cli.choosing import Room, choose
from hermes_cli.hub import cached

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "assets" / "demo.mp4"
QUESTION = "What is on screen?"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cuda(*gigabytes: float) -> Room:
    gpus = [Accelerator(f"cuda:{index}", "GPU", int(size * 1e9), 0) for index, size in enumerate(gigabytes)]
    return Room(gpus, int(64e9))


def known(alias: str) -> KnownModel:
    model = find(alias)
    assert model
    return model


class Hub:
    """A hub of this machine's own, with the embedded model's files under the id of any model that it is given.

    Attributes:
        asked: the requests that came, as `METHOD path`.
    """

    def __init__(self, *ids: str) -> None:
        self.asked: list[str] = []
        self.files = {file.name: file.read_bytes() for file in checkpoint_folder().iterdir()}
        self.ids = ids
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(f"{self.command} {self.path}")
                found = hub.answer(self.path.split("?")[0])
                body = found if isinstance(found, bytes) else json.dumps(found or {"error": "Repository not found"}).encode()
                self.send_response(200 if found else 404)
                for name, value in {
                    "X-Repo-Commit": COMMIT,
                    "ETag": f'"{len(body):040x}"',
                    "Content-Length": len(body),
                }.items():
                    self.send_header(name, str(value))
                if not found:
                    self.send_header("X-Error-Code", "RepoNotFound")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str) -> Any:
        for hub_id in self.ids:
            if path.startswith(f"/api/models/{hub_id}/tree/"):
                return [{"type": "file", "path": name, "size": len(file), "oid": "0"} for name, file in self.files.items()]
            if path in (f"/api/models/{hub_id}", f"/api/models/{hub_id}/revision/main"):
                siblings = [{"rfilename": name, "size": len(file)} for name, file in self.files.items()]
                return {"id": hub_id, "sha": COMMIT, "siblings": siblings}
            if path.startswith(f"/{hub_id}/resolve/"):
                return self.files.get(path.rsplit("/", 1)[1])
        return None


@pytest.fixture
def hub() -> Iterator[Hub]:
    served = Hub(str(SMALLEST.hub_id))
    yield served
    served.server.shutdown()
    served.server.server_close()


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HERMES_MODEL", "HERMES_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Say what this machine has."""

    def here(room: Room) -> None:
        monkeypatch.setattr(choosing.Room, "here", lambda device="auto": room)

    yield here


def hermes(hub: Hub | None, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, since the hub's client reads its settings when it is imported."""
    endpoint = {"HF_ENDPOINT": hub.url} if hub else {}
    return subprocess.run(
        [sys.executable, "-m", "hermes_cli", *map(str, arguments)], cwd=ROOT, env={**os.environ, **endpoint, **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip


PROCESSOR = ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json")


def put(
    folder: Path, hub_id: str, files: Sequence[str], shards: Sequence[str] = (), beside: Sequence[str] = PROCESSOR
) -> None:
    """A model in the cache, as a download leaves it."""
    snapshot = folder / f"models--{hub_id.replace('/', '--')}" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(COMMIT)
    for name in (*files, *beside):
        (snapshot / name).write_text("{}")
    if shards:
        index = {"weight_map": {f"layer{number}": name for number, name in enumerate(shards)}}
        (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))


def test_the_list_as_json_has_every_model_with_its_sizes_in_bytes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(tmp_path / "hub", "Qwen/Qwen3-VL-8B-Instruct", ["config.json", "model.safetensors"])
    assert main(["models", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["alias"] for record in records] == [model.alias for model in CATALOG]
    assert {record["alias"] for record in records if record["cached"]} == {"tiny", "qwen3vl-8b"}
    seven = next(record for record in records if record["alias"] == "qwen2.5vl-7b")
    assert seven["model"] == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert (seven["disk_bytes"], seven["frame_tokens"], seven["frame_tokens_vary"]) == (16584333312, 196, True)
    assert seven["memory_bytes"]["4bit"] == known("qwen2.5vl-7b").memory_bytes("4bit")
    assert records[-1]["fits"]


def test_the_table_is_whole_and_plain_when_piped(tmp_path: Path) -> None:
    done = hermes(None, "models", FORCE_COLOR="1", COLUMNS="40")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "alias"
    for line, model in zip(lines[1:], CATALOG, strict=False):
        assert line.split()[0] == model.alias
        assert (model.hub_id or "in this package") in line
    assert "16.1 GB" in next(line for line in lines if line.startswith("ov-7b"))
    assert lines[-1].startswith("This machine: ")


def test_a_machine_without_a_gpu_runs_the_two_smallest_in_float32(room: Any, capsys: pytest.CaptureFixture[str]) -> None:
    room(Room((), int(64e9)))
    main(["models"])
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:10]] == ["no"] * 7 + ["fp32", "fp32"]


def test_a_model_counts_as_cached_when_everything_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    assert cached("a/none") is None
    put(folder, "a/whole", ["config.json", "model.safetensors"])
    put(folder, "a/sharded", ["config.json", "1.safetensors", "2.safetensors"], ["1.safetensors", "2.safetensors"])
    put(folder, "a/half", ["config.json", "1.safetensors"], ["1.safetensors", "2.safetensors"])
    put(folder, "a/begun", ["config.json"])
    put(folder, "a/bare", ["model.safetensors"])
    put(folder, "a/broken", ["config.json", "model.safetensors.index.json"])
    for missing in PROCESSOR:
        rest = [name for name in PROCESSOR if name != missing]
        put(folder, f"a/no-{missing}", ["config.json", "model.safetensors"], beside=rest)
    put(folder, "a/odd", ["config.json"])
    (folder / "models--a--odd" / "snapshots" / COMMIT / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    put(folder, "a/bytes", ["config.json", "model.safetensors"])
    (folder / "models--a--bytes" / "refs" / "main").write_bytes(b"\xff\xfe")
    found = {path.name.removeprefix("models--a--") for path in folder.iterdir() if cached(path.name[8:].replace("--", "/"))}
    assert found == {"whole", "sharded"}
    assert cached("a/whole") == folder / "models--a--whole" / "snapshots" / COMMIT


def test_what_fits_is_measured_against_all_gpus_together() -> None:
    seven = known("ov-7b")
    assert cuda(80).precisions(seven) == ("bf16", "8bit", "4bit")
    assert cuda(10).precisions(seven) == ("4bit",)
    assert cuda(8).precisions(seven) == ()
    assert cuda(12, 12).precisions(seven) == ("bf16", "8bit", "4bit")
    needed = seven.memory_bytes("bf16", devices=2)
    assert "bf16" not in cuda(needed / 2e9 - 1e-8, needed / 2e9 - 1e-8).precisions(seven)
    apple = Room([Accelerator("mps", "Apple GPU", int(10e9), 0)], int(16e9))
    assert apple.precisions(seven) == ()  # no --quant there
    assert Room((), int(500e9)).precisions(seven) == ()
    assert Room((), int(64e9)).precisions(SMALLEST) == ("fp32",)
    assert Room((), int(2e9)).precisions(SMALLEST) == ()


def test_the_device_that_is_named_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = tuple(cuda(24, 80).accelerators)
    monkeypatch.setattr(choosing, "accelerators", lambda: gpus)
    assert Room.here("cpu").accelerators == ()
    for device, expected in {"auto": gpus, "cuda": gpus[:1], "1": gpus[1:], "cuda:0,cuda:1": gpus}.items():
        assert tuple(Room.here(device).accelerators) == expected


def test_without_a_name_the_best_cached_model_that_fits_is_taken(room: Any, tmp_path: Path) -> None:
    for alias in ("ov-0.5b", "qwen3vl-4b", "ov-7b", "ov-72b"):
        put(tmp_path / "hub", str(known(alias).hub_id), ["config.json", "model.safetensors"])
    expected = {160: "ov-72b", 80: "ov-7b", 16: "qwen3vl-4b", 4: "ov-0.5b"}
    for gigabytes, alias in expected.items():
        room(cuda(gigabytes))
        choice = choose()
        assert (choice.source, choice.alias) == (known(alias).hub_id, alias)
        assert choice.reason == "the best cached model that fits this machine in bf16"
        assert choice.note.startswith(f"using {alias}, the best cached model")
    room(cuda(10))
    assert choose(quant="4bit").alias == "ov-7b"
    room(Room((), int(64e9)))
    assert choose().alias == "ov-0.5b"


def test_with_nothing_cached_the_embedded_model_says_what_it_knows_and_what_to_take(room: Any, tmp_path: Path) -> None:
    for machine, alias in (
        (Room((), int(64e9)), "ov-0.5b"), (cuda(24), "qwen3vl-8b"), (cuda(141), "qwen2.5vl-32b"), (cuda(1), "ov-0.5b"),
    ):  # fmt: skip
        room(machine)
        choice = choose()
        assert (choice.source, choice.alias) == (str(checkpoint_folder()), "tiny")
        assert choice.reason == "no model for real videos is cached that fits this machine"
        assert choice.note == (
            "using the small model of this package, which knows coloured shapes only; for real videos: "
            f"-m {alias} (hermes models lists them)"
        )


def test_a_name_is_a_folder_an_alias_or_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose("ov-7b").source == "llava-hf/llava-onevision-qwen2-7b-ov-hf"
    assert choose("Qwen/Qwen3-VL-8B-Instruct").alias == "qwen3vl-8b"
    assert choose("someone/else").alias is None
    assert choose("tiny").source == str(checkpoint_folder())
    (tmp_path / "ov-7b").mkdir()
    assert choose("ov-7b").alias == "ov-7b"
    (tmp_path / "ov-7b" / "config.json").write_text("{}")
    assert (choose("ov-7b").source, choose("ov-7b").alias) == ("ov-7b", None)
    (tmp_path / "mine").mkdir()
    assert choose("mine").source == "mine"
    assert not any(choose(named).note for named in ("ov-7b", "someone/else", "mine", "tiny"))


@pytest.mark.parametrize(
    ("named", "message", "hint"),
    [
        ("ov7b", "unknown model 'ov7b'", "did you mean ov-7b"),
        ("Qwen3VL-8B", "unknown model 'Qwen3VL-8B'", "did you mean qwen3vl-8b"),
        ("zzz", "unknown model 'zzz'", "hermes models lists"),
        ("", "unknown model ''", "hermes models lists"),
        ("./nowhere", "there is no folder './nowhere'", "an alias"),
        ("x" * 5000, "unknown model", "hermes models lists"),
    ],
)
def test_a_name_that_means_nothing_is_an_error_with_what_was_meant(named: str, message: str, hint: str) -> None:
    with pytest.raises(ModelError, match=r"^(unknown model|there is no folder)") as raised:
        choose(named)
    assert raised.value.message.startswith(message)
    assert hint in raised.value.hint


def test_offline_nothing_is_asked_and_the_error_has_the_command_that_fetches(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    done = hermes(hub, "ask", DEMO, QUESTION, "-m", "ov-0.5b", "--offline", "--cache-dir", folder)
    assert (done.returncode, done.stdout, hub.asked) == (4, "", [])
    assert done.stderr.splitlines() == [
        f"error: model '{SMALLEST.hub_id}' is not in {folder}, and --offline forbids to fetch it",
        f"hint: fetch it first: hf download {SMALLEST.hub_id} --cache-dir '{folder}'",
    ]
    done = hermes(hub, "ask", DEMO, QUESTION, "-m", "ov-0.5b", HERMES_OFFLINE="1")
    assert (done.returncode, hub.asked) == (4, [])


def test_the_hub_is_imported_after_the_options_that_it_reads(tmp_path: Path) -> None:
    code = (
        "import sys; from hermes_cli.app import main; assert 'huggingface_hub' not in sys.modules\n"
        "code = main(['ask', sys.argv[1], 'What?', '-m', 'tiny', '--offline', '--cache-dir', sys.argv[2], '--end', '1'])\n"
        "from huggingface_hub import constants as hub; print([code, hub.HF_HUB_OFFLINE, hub.HF_HUB_CACHE])"
    )
    command = [sys.executable, "-c", code, str(DEMO), str(tmp_path / "other")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.stdout.splitlines()[-1] == str([0, True, str(tmp_path / "other")])


def test_an_id_that_the_hub_does_not_know_is_asked_for_once(hub: Hub) -> None:
    done = hermes(hub, "ask", DEMO, QUESTION, "-m", "nobody/nothing")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        "error: there is no folder 'nobody/nothing', and no such model on the hub, or it is gated",
        "hint: hermes models lists the known ones; for a gated one: hf auth login",
    ]
    assert [request for request in hub.asked if "nobody" in request] == ["GET /api/models/nobody/nothing?blobs=true"]


def test_a_hub_that_cannot_be_reached_is_one_error_with_the_command_for_later() -> None:
    done = hermes(None, "ask", DEMO, QUESTION, "-m", "ov-0.5b", HF_ENDPOINT="http://127.0.0.1:9")
    error, hint = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (4, "")
    assert error.startswith(f"error: there is no folder '{SMALLEST.hub_id}', and no model could be fetched from the hub: ")
    assert f"hf download {SMALLEST.hub_id}" in hint


def test_a_model_is_downloaded_once_and_then_taken_from_the_cache(hub: Hub, tmp_path: Path) -> None:
    hub.files["other.onnx"] = b"not needed"
    arguments = ("ask", DEMO, QUESTION, "--end", "3", "-m", "ov-0.5b", "--json-lines")
    first = hermes(hub, *arguments)
    announced, *rest = first.stderr.splitlines()
    assert announced == f"downloading {SMALLEST.hub_id} (0.0 GB) into {tmp_path / 'hub'}"
    assert not [line for line in rest if "%" in line]
    start = json.loads(first.stdout.splitlines()[0])
    assert [start[key] for key in ("model", "revision", "model_alias", "model_reason")] == [
        SMALLEST.hub_id, COMMIT, "ov-0.5b", "named by -m or HERMES_MODEL",
    ]  # fmt: skip
    assert not [request for request in hub.asked if "onnx" in request]
    hub.asked.clear()
    again = hermes(hub, *arguments)
    assert (again.returncode, hub.asked) == (0, [])
    assert "downloading" not in again.stderr
    quiet = hermes(hub, *arguments, "--quiet", "--cache-dir", tmp_path / "quiet")
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_the_record_says_which_model_was_chosen_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["ask", str(DEMO), QUESTION, "--end", "3", "--json-lines"]) == 0
    start = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (start["model_alias"], start["model_reason"]) == ("tiny", choose().reason)


def test_names_of_the_command_line_are_those_of_the_library() -> None:
    assert get_args(options.QuantName) == QUANTS


@pytest.mark.parametrize(("width", "missing"), [(200, []), (100, ["Hugging Face id"]), (60, ["on disk", "parameters"])])
def test_a_narrow_terminal_gets_whole_lines_without_the_columns_that_matter_least(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, missing: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    main(["models"])
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines() if line][:-1]
    assert len(lines) == len(CATALOG) + 1
    assert all(len(line) <= width for line in lines)
    assert not any(heading in lines[0] for heading in missing)
    assert "fits this machine" in lines[0]
