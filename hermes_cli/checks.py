"""The checks of `hermes doctor`: each looks at one thing that a run needs, and says what to do where it is not in order.

Nothing is downloaded and no camera is opened. What needs torch is imported when it is called.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import hermes
from hermes.catalog import CATALOG, TINY, find
from hermes.config import MemoryConfig
from hermes.errors import ModelError
from hermes.machine import Accelerator, accelerators, host_memory
from hermes.sources.cameras import can_list_cameras, list_cameras
from hermes.sources.codecs import check_decoding, installed_codecs
from hermes.tiny import checkpoint_folder
from hermes_cli.choosing import Choice, Room, choose, is_folder
from hermes_cli.failures import describe
from hermes_cli.hub import cache_folder, cached
from hermes_cli.loading import load_checkpoint
from hermes_cli.options import ModelOptions

State = Literal["ok", "note", "problem"]

_GIB = 2**30
_LITTLE_MEMORY = 2 * _GIB  # torch and transformers alone take about half of it
_BF16_CAPABILITY = (8, 0)  # Ampere; older GPUs only imitate it
_OFFLINE = ("HERMES_OFFLINE", "HF_HUB_OFFLINE")
_TRUE = ("1", "true", "yes", "on")
_AGAIN = "install hermes-video again"


@dataclass(frozen=True)
class Finding:
    """A row of the report.

    Attributes:
        check: what was looked at.
        state: `note` is worth knowing, `problem` is in the way of something.
        finding: what is there, one line.
        next_step: what to do about it; empty where all is well.
        facts: the same for programs; bytes are integers.
        exit_code: of the process, where nothing can run because of this; else 0.
    """

    check: str
    state: State
    finding: str
    next_step: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    exit_code: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return {
            "check": self.check,
            "state": self.state,
            "finding": self.finding,
            "next_step": self.next_step or None,
            "facts": self.facts,
        }


@dataclass(frozen=True)
class Check:
    """Something to look at.

    Attributes:
        name: of the thing.
        look: yields what it finds; may raise anything.
        remedy: the next step when it raises what we did not foresee.
        essential: whether nothing can run when it raises.
    """

    name: str
    look: Callable[[], Iterator[Finding]]
    remedy: str = _AGAIN
    essential: bool = False

    def findings(self) -> list[Finding]:
        """What `look` finds; what it raises is a problem."""
        found: list[Finding] = []
        try:
            found.extend(self.look())
        except Exception as error:  # the more broken a machine is, the more its owner needs the other rows
            found.append(self._failed(error))
        return found

    def _failed(self, error: Exception) -> Finding:
        failure = describe(error)
        code = failure.exit_code if failure.expected else ModelError.exit_code
        step = (failure.hint if failure.expected else "") or self.remedy
        return Finding(self.name, "problem", failure.message, step, exit_code=code if self.essential else 0)


def examine(checks: Iterable[Check]) -> list[Finding]:
    """Carry out the checks, in order."""
    return [finding for check in checks for finding in check.findings()]


def _seen(check: str, finding: str, facts: dict[str, Any], next_step: str = "") -> Finding:
    """A row that is in nobody's way: worth a note where there is something to do about it."""
    return Finding(check, "note" if next_step else "ok", finding, next_step, facts)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    facts = {"version": version, "executable": sys.executable, "platform": platform.platform()}
    yield _seen("Python", f"{version}, {sys.executable}, on {facts['platform']}", facts)


def _hermes() -> Iterator[Finding]:
    folder = Path(hermes.__file__).parent
    facts = {"version": hermes.__version__, "folder": str(folder)}
    yield _seen("hermes", f"{hermes.__version__}, in {folder}", facts)


def _torch() -> Iterator[Finding]:
    import torch  # noqa: PLC0415 - slow to load

    build = _torch_build()
    yield _seen("torch", f"{torch.__version__}, {build}", {"version": str(torch.__version__), "build": build})


def _torch_build() -> str:
    import torch  # noqa: PLC0415 - slow to load

    if torch.version.cuda:
        return f"built for CUDA {torch.version.cuda}"
    if torch.version.hip:
        return f"built for ROCm {torch.version.hip}"
    return "built for MPS" if torch.backends.mps.is_built() else "built for the CPU only"


def _accelerators() -> Iterator[Finding]:
    """One row a GPU, or one that says why there is none."""
    found, driver = accelerators(), _nvidia_driver()
    facts: dict[str, Any] = {"driver": driver, "devices": [accelerator.device for accelerator in found]}
    if found:
        yield _seen("GPU", f"usable: {len(found)}" + (f", NVIDIA driver {driver}" if driver else ""), facts)
        yield from map(_gpu, found)
    elif driver:
        step = "install a newer driver, or a torch for this one (pytorch.org); nvidia-smi shows whether the GPU is taken"
        yield Finding("GPU", "problem", f"NVIDIA driver {driver}, but torch, {_torch_build()}, cannot use it", step, facts)
    else:
        step = "the small model is quick on a CPU; for a large one use a computer with a GPU and its driver"
        yield _seen("GPU", "none: models run on the CPU", facts, step)


def _nvidia_driver() -> str | None:
    """The version of NVIDIA's driver; None where there is none, or no GPU that it can see."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


def _gpu(accelerator: Accelerator) -> Finding:
    capability = _capability(accelerator)
    bf16 = capability is None or capability >= _BF16_CAPABILITY
    facts = {
        "device": accelerator.device,
        "label": accelerator.label,
        "total_bytes": accelerator.total_bytes,
        "free_bytes": accelerator.free_bytes,
        "compute_capability": capability and ".".join(map(str, capability)),
        "bf16": bf16,
    }
    parts = [accelerator.label, f"{_gib(accelerator.free_bytes)} of {_gib(accelerator.total_bytes)} free"]
    if capability:
        parts.append(f"compute capability {facts['compute_capability']}")
    parts.append("bf16" if bf16 else "no bf16")
    return _seen(accelerator.device, ", ".join(parts), facts, "" if bf16 else "run models with --dtype fp16")


def _capability(accelerator: Accelerator) -> tuple[int, int] | None:
    import torch  # noqa: PLC0415 - slow to load

    return torch.cuda.get_device_capability(accelerator.device) if accelerator.device.startswith("cuda") else None


def _memory() -> Iterator[Finding]:
    memory, cores = host_memory(), _cores()
    facts = {"total_bytes": memory.total_bytes, "available_bytes": memory.available_bytes, "cores": cores}
    text = f"{_gib(memory.available_bytes)} of {_gib(memory.total_bytes)} available, CPU cores: {cores}"
    little = memory.available_bytes < _LITTLE_MEMORY
    yield _seen("memory", text, facts, "close other programs before you load a model" if little else "")


def _cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _package(name: str) -> Check:
    """A package that nothing runs without."""

    def look() -> Iterator[Finding]:
        version = _version(name)
        if version is None:
            yield Finding(name, "problem", "not installed", _AGAIN, {"version": None})
        else:
            yield _seen(name, version, {"version": version})

    return Check(name, look)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _bitsandbytes() -> Iterator[Finding]:
    name, version = "bitsandbytes", _version("bitsandbytes")
    if version is None:
        step = "pip install bitsandbytes, if you want --quant 4bit or 8bit"
        yield _seen(name, "not installed: weights cannot be quantised", {"version": None, "device": None}, step)
        return
    devices = [accelerator.device for accelerator in accelerators()] or ["cpu"]
    _quantise(devices[0])
    yield _seen(name, f"{version}, works on {devices[0]}", {"version": version, "device": devices[0]})


def _quantise(device: str) -> None:
    """Quantise something, since an installed bitsandbytes need not have a library for this machine; raises where not."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it recommends further packages
    import torch  # noqa: PLC0415 - slow to load
    from bitsandbytes.functional import quantize_4bit  # noqa: PLC0415 - slow to load

    quantize_4bit(torch.ones(64, 64, device=device), quant_type="nf4")


def _video() -> Iterator[Finding]:
    codecs = installed_codecs()
    facts = {"version": codecs.version, "ffmpeg": codecs.ffmpeg, "libraries": codecs.libraries}
    libraries = ", ".join(f"{name} {version}" for name, version in codecs.libraries.items())
    yield _seen("PyAV", f"{codecs.version} with FFmpeg {codecs.ffmpeg}: {libraries}", facts)
    present, missing = (", ".join(n for n, here in codecs.decoders.items() if here is wanted) for wanted in (True, False))
    text = present + (f"; missing: {missing}" if missing else "")
    step = "pip install --only-binary av --force-reinstall av brings them; or convert such videos to H.264"
    yield _seen("decoders", text, codecs.decoders, step if missing else "")


def _decoding() -> Iterator[Finding]:
    count = check_decoding()
    yield _seen("decoding", f"{count} frames encoded and decoded again", {"frames": count})


def _opencv() -> Iterator[Finding]:
    names = ("opencv-python", "opencv-python-headless", "opencv-contrib-python-headless", "opencv-contrib-python")
    version = next((version for name in names if (version := _version(name))), None)
    step = "" if version else "pip install opencv-python, if you want to use a camera"
    yield _seen("OpenCV", version or "not installed; only cameras need it", {"version": version}, step)


def _cameras() -> Iterator[Finding]:
    names = [f"{camera.name} ({camera.device})" for camera in list_cameras()]
    none = "none" if can_list_cameras() else "this system does not list them"
    step = "" if names else "video files need none"
    yield _seen("cameras", ", ".join(names) or none, {"names": names}, step)


def _model_cache() -> Iterator[Finding]:
    folder = cache_folder().absolute()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free, writable = shutil.disk_usage(existing).free, existing.is_dir() and os.access(existing, os.W_OK)
    models = [model.alias for model in CATALOG if model.hub_id and cached(model.hub_id)]
    facts = {"folder": str(folder), "exists": folder.exists(), "writable": writable, "free_bytes": free, "models": models}
    there = "cannot be written" if not writable else f"{_gib(free)} free" if folder.exists() else f"new, {_gib(free)} free"
    text = f"{folder} ({there}); known models in it: {', '.join(models) or 'none'}"
    step = "choose another folder with --cache-dir or HF_HUB_CACHE, if you want to download models"
    yield _seen("model cache", text, facts, "" if writable else step)


def _hub() -> Iterator[Finding]:
    from huggingface_hub import get_token  # noqa: PLC0415 - as in hermes_cli/hub.py

    forbidding = [name for name in _OFFLINE if os.environ.get(name, "").lower() in _TRUE]
    token = get_token() is not None
    text = "a token is set" if token else "no token is set (public models need none)"
    step = f"unset {' and '.join(forbidding)} when you want to download a model" if forbidding else ""
    allowed = "nothing is downloaded" if forbidding else "downloads are allowed"
    yield _seen("Hugging Face", f"{allowed}; {text}", {"offline": bool(forbidding), "token_set": token}, step)


def _terminal() -> Iterator[Finding]:
    kinds = {name: _stream_kind(name) for name in ("stdin", "stdout", "stderr")}
    columns, rows = shutil.get_terminal_size()
    encoding = (sys.__stdout__.encoding if sys.__stdout__ else "unknown").lower()
    facts = {
        **kinds,
        "columns": columns,
        "rows": rows,
        "term": os.environ.get("TERM"),
        "no_color": bool(os.environ.get("NO_COLOR")),
        "encoding": encoding,
    }
    streams = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    colour = "NO_COLOR is set" if facts["no_color"] else "colours allowed"
    text = f"{streams}; {columns} x {rows}; TERM={facts['term'] or ''}; {colour}; {encoding}"
    step = "other letters than its own come out as escapes; PYTHONIOENCODING=utf-8 or a UTF-8 locale shows them"
    yield _seen("terminal", text, facts, "" if encoding.replace("-", "") == "utf8" else step)


def _stream_kind(name: str) -> str:
    stream = getattr(sys, f"__{name}__")  # without the underscores, whatever stands in for it while we work
    if stream is None:
        return "closed"
    return "terminal" if stream.isatty() else "piped"


def _embedded_model() -> Iterator[Finding]:
    """The main job: a chunk is read and a question is answered, for real."""
    start = time.perf_counter()
    model = load_checkpoint(ModelOptions(model=str(checkpoint_folder())))
    from hermes.evals.shapes import ShapesTask, evaluate_shapes  # noqa: PLC0415 - loads torch

    loaded = time.perf_counter()
    config = MemoryConfig()
    task = ShapesTask(frames=config.chunk_frames, videos=1, questions=1, seed="doctor")
    (sample,) = evaluate_shapes(model, config, ["hermes"], task)
    load_s, run_s = loaded - start, time.perf_counter() - loaded
    facts = {
        "device": str(model.device),
        "load_ms": 1000 * load_s,
        "run_ms": 1000 * run_s,
        "frames": task.frames,
        "question": sample.question,
        "answer": sample.answer,
        "expected": sample.expected,
    }
    text = f"loaded in {load_s:.1f} s on {model.device}, {task.frames} frames and a question in {run_s:.1f} s"
    if sample.right:
        yield _seen("embedded model", f"{text}: {sample.question} {sample.answer}", facts)
    else:
        wrong = f"{text}, but to {sample.question!r} it said {sample.answer!r} in place of {sample.expected!r}"
        yield _seen("embedded model", wrong, facts, "compare `hermes eval shapes` with the README's numbers")


def _known_models() -> Iterator[Finding]:
    room = Room.here()
    fitting = {model.alias: room.precisions(model) for model in CATALOG}
    fits = ", ".join(f"{alias} ({', '.join(precisions)})" for alias, precisions in fitting.items() if precisions)
    others = ", ".join(alias for alias, precisions in fitting.items() if not precisions)
    facts = {"fits": fitting, "recommended": room.recommended().alias}
    yield _seen("known models", f"run here: {fits}" + (f"; do not: {others}" if others else ""), facts)


def _default_model() -> Iterator[Finding]:
    choice = choose(os.environ.get("HERMES_MODEL") or None)
    facts = {"source": choice.source, "alias": choice.alias, "reason": choice.reason}
    yield _seen("would use", f"{choice.alias or choice.source}: {choice.reason}", facts, _step_towards(choice))


def _step_towards(choice: Choice) -> str:
    """What is to be done before a chosen model can be used, or instead of using it; empty when nothing is."""
    known, room = find(choice.alias) if choice.alias else None, Room.here()
    if choice.alias == TINY.alias:
        return f"for real videos: -m {room.recommended().alias}"
    if known and not room.precisions(known):
        return f"it does not fit this machine; the best that does: -m {room.recommended().alias}"
    if is_folder(choice.source):
        return (
            ""
            if (Path(choice.source) / "config.json").is_file()
            else "name a folder with a checkpoint: config.json is missing"
        )
    return "" if cached(choice.source) else f"it is downloaded at its first use, or by: hf download {choice.source}"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


_PYTORCH = "install torch again, as pytorch.org says for this machine"

CHECKS: Sequence[Check] = (
    Check("Python", _python),
    Check("hermes", _hermes),
    Check("torch", _torch, _PYTORCH),
    Check("GPU", _accelerators, _PYTORCH),
    Check("memory", _memory),
    _package("transformers"),
    _package("accelerate"),
    Check("bitsandbytes", _bitsandbytes, "run without --quant, or install the bitsandbytes that its manual names"),
    Check("PyAV", _video, "install PyAV again"),
    Check("decoding", _decoding, "install PyAV again", essential=True),
    Check("OpenCV", _opencv),
    Check("cameras", _cameras),
    Check("model cache", _model_cache, "choose another folder with HF_HUB_CACHE"),
    Check("Hugging Face", _hub),
    Check("terminal", _terminal),
    Check("embedded model", _embedded_model, essential=True),
    Check("known models", _known_models),
    Check("would use", _default_model),
)
"""What `hermes doctor` looks at, in the order of its report."""
