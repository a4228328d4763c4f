"""`hermes doctor`: what it says about a machine, and the exit code that it gives."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hermes import errors
from hermes.machine import Accelerator, HostMemory
from hermes.sources import cameras, codecs
from hermes_cli import checks, failures
from hermes_cli.app import main
from hermes_cli.checks import CHECKS, Check, Finding, examine
from hermes_cli.commands import doctor

GIB = 2**30
OLD_GPU = Accelerator("cuda:0", "Tesla T4", 15 * GIB, 14 * GIB)
NEW_GPU = Accelerator("cuda:1", "NVIDIA H200", 140 * GIB, 20 * GIB)
CAPABILITIES = {"cuda:0": (7, 5), "cuda:1": (9, 0)}


def run_doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real thing, in a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "HF_"))}
    command = [sys.executable, "-m", "hermes_cli", "doctor", *arguments]
    return subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)


def look(name: str) -> list[Finding]:
    """The rows of one check."""
    return next(check for check in CHECKS if check.name == name).findings()


def raising(error: Exception, name: str = "broken", essential: bool = False) -> Check:
    def look() -> Iterator[Finding]:
        yield Finding(name, "ok", "so far, so good")
        raise error

    return Check(name, look, "mend it", essential)


def test_the_main_job_runs_here_and_the_report_says_so(tmp_path: Path) -> None:
    cache = tmp_path / "not" / "there"
    done = run_doctor(HF_HUB_CACHE=str(cache), HF_TOKEN="hf_confidential", PYTHONIOENCODING="ascii", FORCE_COLOR="1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "hermes runs here."
    assert "\x1b" not in done.stdout
    states = [line.split()[0] for line in lines[1:-2] if not line.startswith(" ")]
    assert states == sorted(states, key=["problem", "note", "ok"].index)
    assert {"note", "ok"} <= set(states)
    assert "confidential" not in done.stdout
    assert "a token is set" in done.stdout
    (cache_line,) = (line for line in lines if "model cache" in line)
    assert f"{cache} (new, " in cache_line
    assert not cache.exists()
    (model_line,) = (line for line in lines if "embedded model" in line)
    assert model_line.startswith("ok")
    assert "a UTF-8 locale shows them" in done.stdout


def test_json_is_one_object_on_standard_output_and_nothing_else() -> None:
    done = run_doctor("--json", HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    report = json.loads(done.stdout)
    assert (report["type"], report["ok"]) == ("doctor", True)
    found = {row["check"]: row for row in report["checks"]}
    assert found.keys() >= {check.name for check in CHECKS}
    for row in report["checks"]:
        assert row.keys() == {"check", "state", "finding", "next_step", "facts"}
        assert bool(row["next_step"]) == (row["state"] != "ok")
    assert found["Hugging Face"]["facts"] == {"offline": True, "token_set": False}
    assert "HF_HUB_OFFLINE" in found["Hugging Face"]["next_step"]
    assert found["terminal"]["facts"]["stdout"] == "piped"
    for key, value in keyed(report):
        assert key == key.lower()
        assert not key.endswith("_bytes") or type(value) is int
    embedded = found["embedded model"]["facts"]
    assert embedded["answer"] == embedded["expected"]


def keyed(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a JSON value with what it names."""
    if isinstance(value, dict):
        yield from value.items()
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from keyed(child)


@pytest.mark.parametrize(
    ("error", "essential", "code", "next_step"),
    [
        (errors.SourceError("no pictures", "look again"), True, 3, "look again"),
        (errors.ModelError("no weights", "fetch them"), True, 4, "fetch them"),
        (MemoryError("all gone"), True, 5, "--quant 4bit"),
        (ZeroDivisionError("oh\nno"), True, 4, "mend it"),
        (ImportError("libcudart.so.13: cannot open shared object file"), False, 0, "mend it"),
        (errors.ModelError("no weights", "fetch them"), False, 0, "fetch them"),
        (errors.ModelError("no hint"), False, 0, "mend it"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_check_that_fails_is_a_row_and_decides_the_exit_code_if_nothing_runs_without_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    essential: bool,
    code: int,
    next_step: str,
    as_json: bool,
) -> None:
    fine = Check("fine", lambda: iter([Finding("fine", "ok", "yes")]))
    monkeypatch.setattr(doctor, "CHECKS", (fine, raising(error, "broken", essential), fine))
    assert main(["doctor", *(["--json"] if as_json else [])]) == code
    out, err = capsys.readouterr()
    assert err == ""
    if as_json:
        report = json.loads(out)
        rows, usable = report["checks"], report["ok"]
        assert [row["state"] for row in rows] == ["ok", "ok", "problem", "ok"]
        assert str(error).splitlines()[0] in rows[2]["finding"]
        assert next_step in rows[2]["next_step"]
        assert usable == (code == 0)
    else:
        lines = out.splitlines()
        assert lines[1].startswith("problem  broken")
        assert lines[2].strip().startswith("next: ")
        assert next_step in lines[2]
        assert ("cannot run here" in lines[-1]) == (code != 0)


def test_a_report_for_a_narrow_terminal_is_folded_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "/a/very/long/folder/name/that/nobody/would/want/to/type/by/hand"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(doctor, "CHECKS", (Check("there", lambda: iter([Finding("there", "ok", f"[b]{folder}\x1b[2J")])),))
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["doctor"]) == 0
    table = terminal.getvalue().split("\n\n")[0].splitlines()
    assert max(map(len, table)) <= 40
    assert f"[b]{folder}[2J" in "".join(line[len("STATE  CHECK  ") :] for line in table)


def machine_with(
    monkeypatch: pytest.MonkeyPatch, *gpus: Accelerator, driver: str | None = "575.57.08", build: str = "13.0"
) -> None:
    monkeypatch.setattr(checks, "accelerators", lambda: gpus)
    monkeypatch.setattr(checks, "_nvidia_driver", lambda: driver)
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.cuda, "get_device_capability", CAPABILITIES.__getitem__)


def test_every_gpu_has_a_row_and_one_without_bf16_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, OLD_GPU, NEW_GPU)
    summary, old, new = look("GPU")
    assert (summary.state, summary.facts) == ("ok", {"driver": "575.57.08", "devices": ["cuda:0", "cuda:1"]})
    assert (old.check, old.state) == ("cuda:0", "note")
    assert "--dtype fp16" in old.next_step
    assert (new.check, new.state, new.next_step) == ("cuda:1", "ok", "")
    assert new.finding == "NVIDIA H200, 20.0 GiB of 140.0 GiB free, compute capability 9.0, bf16"
    assert new.facts["free_bytes"] == 20 * GIB


def test_apples_gpu_has_no_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, Accelerator("mps", "Apple GPU", 12 * GIB, 11 * GIB), driver=None)
    _, gpu = look("GPU")
    assert (gpu.check, gpu.state, gpu.facts["compute_capability"]) == ("mps", "ok", None)


def test_a_gpu_that_torch_cannot_use_is_a_problem_and_none_at_all_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch)
    (finding,) = look("GPU")
    assert (finding.state, finding.exit_code) == ("problem", 0)
    assert "built for CUDA 13.0" in finding.finding
    machine_with(monkeypatch, driver=None)
    (finding,) = look("GPU")
    assert finding.state == "note"


@pytest.mark.parametrize(("output", "code", "driver"), [("575.57.08\n575.57.08", 0, "575.57.08"), ("No devices", 6, None)])
def test_the_driver_is_what_nvidias_program_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, driver: str | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{output}\\n'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(checks, "accelerators", lambda: ())
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = look("GPU")
    assert finding.facts["driver"] == driver


def test_little_memory_is_worth_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "host_memory", lambda: HostMemory(16 * GIB, GIB))
    (finding,) = look("memory")
    assert (finding.state, finding.facts["available_bytes"]) == ("note", GIB)
    assert finding.finding.startswith("1.0 GiB of 16.0 GiB available")


def test_bitsandbytes_that_is_missing_or_has_no_library_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(device: str) -> None:
        raise RuntimeError("no native library")

    machine_with(monkeypatch, driver=None)
    monkeypatch.setattr(checks, "_quantise", no_library)
    (finding,) = look("bitsandbytes")
    assert (finding.state, finding.exit_code) == ("problem", 0)
    assert "--quant" in finding.next_step
    monkeypatch.setattr(checks, "_version", lambda name: None)
    (finding,) = look("bitsandbytes")
    assert (finding.state, finding.facts["version"]) == ("note", None)


def test_cameras_are_the_nodes_with_pictures_in_the_order_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name, index in ((10, "Capture card", 0), (2, "Webcam", 0), (3, "Webcam", 1)):
        node = tmp_path / f"video{number}"
        node.mkdir()
        (node / "name").write_text(f"{name}\n")
        (node / "index").write_text(f"{index}\n")
    monkeypatch.setattr(cameras, "_NODES", tmp_path)
    (finding,) = look("cameras")
    assert (finding.state, finding.finding) == ("ok", "Webcam (/dev/video2), Capture card (/dev/video10)")
    monkeypatch.setattr(cameras, "_NODES", tmp_path / "none")
    (finding,) = look("cameras")
    assert (finding.state, finding.facts) == ("note", {"names": []})


def test_decoders_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_DECODERS", {"h264": ("h264",), "av1": ("libnothing", "libelse")})
    libraries, decoders = look("PyAV")
    assert "libavcodec " in libraries.finding
    assert (decoders.state, decoders.finding) == ("note", "h264; missing: av1")


@pytest.mark.parametrize("written", [b"", b"not a video", b"one picture too few"])
def test_pictures_that_do_not_come_back_are_no_working_decoder(monkeypatch: pytest.MonkeyPatch, written: bytes) -> None:
    encode = codecs._encode

    def wrongly(file: io.BytesIO) -> None:
        if written == b"one picture too few":
            monkeypatch.setattr(codecs, "_CHECKED_FRAMES", 2)
            encode(file)
            monkeypatch.setattr(codecs, "_CHECKED_FRAMES", 3)
        else:
            file.write(written)

    monkeypatch.setattr(codecs, "_encode", wrongly)
    (finding,) = look("decoding")
    assert (finding.state, finding.exit_code) == ("problem", errors.SourceError.exit_code)


def test_the_cache_folder_that_cannot_be_written_says_how_to_choose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    (finding,) = look("model cache")
    assert (finding.state, finding.facts["exists"], finding.facts["writable"]) == ("note", False, False)
    assert "--cache-dir" in finding.next_step


def test_the_model_that_would_be_used_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for named, step in {
        "ov-0.5b": "hf download",
        "ov-72b": "does not fit",
        "a/b": "hf download",
        "/tmp": "no config",
    }.items():
        monkeypatch.setenv("HERMES_MODEL", named)
        (finding,) = look("would use")
        assert finding.state == "note"
        assert step.replace("no config", "config.json is missing") in finding.next_step
    monkeypatch.setenv("HERMES_MODEL", "ov-0.6b")
    (finding,) = look("would use")
    assert (finding.state, finding.exit_code) == ("problem", 0)


def test_models_that_fit_come_with_the_precision_that_makes_them_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_cli.choosing.accelerators", lambda: (NEW_GPU,))
    (finding,) = look("known models")
    assert finding.facts["fits"]["ov-72b"] == ("8bit", "4bit")
    assert "ov-72b (8bit, 4bit)" in finding.finding


def test_out_of_memory_names_what_helps_and_how_full_the_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 24.00 GiB of which 1 GiB is free."
    failure = failures.describe(torch.OutOfMemoryError(text))
    assert failure.exit_code == 5
    assert failure.message.endswith("CUDA out of memory. Tried to allocate 2.00 GiB")
    hint = failure.hint
    assert 0 < hint.index("--quant 4bit") < hint.index("--budget") < hint.index("--chunk") < hint.index("hermes models")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", {"cuda:1": (GIB, 24 * GIB)}.__getitem__)
    failure = failures.describe(torch.OutOfMemoryError(text))
    assert "23.0 of 24.0 GiB on cuda:1 are in use" in failure.message
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: torch.empty(-1))  # a RuntimeError, as of a broken device
    assert "in use" not in failures.describe(torch.OutOfMemoryError(text)).message


def test_every_check_says_what_to_do_when_it_breaks() -> None:
    broken = [Check(check.name, raising(ValueError("?")).look, check.remedy, check.essential) for check in CHECKS]
    for finding in examine(broken):
        assert bool(finding.next_step) == (finding.state == "problem")
