"""Every option that more than one command has, each written once, in groups that turn themselves into what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from hermes.config import PRESETS, MemoryConfig, Sampling
from hermes.errors import UsageError
from hermes.sources import Buffering, Connecting
from hermes_cli.film import Film, Pacing
from hermes_cli.hub import stay_offline, use_cache_folder
from hermes_cli.knobs import choice, given, knob
from hermes_cli.terminal import choose_verbosity

PolicyName = Literal["hermes", "fifo", "full", "recent", "uniform", "attention", "streammem", "infinipot"]
DtypeName = Literal["auto", "bf16", "fp16", "fp32"]
QuantName = Literal["none", "8bit", "4bit"]
PromptStyleName = Literal["template", "released"]
"""Names of the library's registries, repeated here because importing them would load torch for `--help`; a test compares."""

SOURCE_HELP = (
    "Video file, folder of them or quoted pattern; camera (0, /dev/video0, camera:NAME); address (rtsp://, http://, tcp://);"
    " - for standard input."
)
SourceArgument = Annotated[str, typer.Argument(metavar="SRC", help=SOURCE_HELP)]


def tokens(written: str) -> int:
    """A number of tokens: `4000`, `16k` (16000); raises `UsageError` for anything else."""
    number = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(k?)", written.strip().lower())
    count = float(number[1]) * (1000 if number[2] else 1) if number else 0.5
    if count != int(count):
        raise UsageError(f"{written!r} is not a number of tokens", "write it as 4000 or 4k")
    return int(count)


def pixels(written: str) -> int:
    """A number of pixels: `300000`, `300k`, `640x480`; raises `UsageError` for anything else."""
    sides = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", written.strip().lower())
    try:
        return int(sides[1]) * int(sides[2]) if sides else tokens(written)
    except UsageError as error:
        raise UsageError(f"{written!r} is not a number of pixels", "write it as 300000, 300k or 640x480") from error


def nbytes(written: str) -> int:
    """A size: `2GiB`, `500MB`, `1000000`; raises `UsageError` for anything else."""
    size = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(?:([kmgt])(i?))?b?", written.strip().lower())
    if not size:
        raise UsageError(f"{written!r} is not a size", "write it as 2GiB, 500MB or a number of bytes")
    base = 1024 if size[3] else 1000
    count = int(float(size[1]) * base ** ("kmgt".index(size[2]) + 1 if size[2] else 0))
    if not count:
        raise UsageError(f"{written!r} leaves no room", "write it as 2GiB, 500MB or a number of bytes")
    return count


_playing, _model, _memory, _saving, _answering, _output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Playing", "Model", "Memory", "Session", "Answers", "Output")
)

CacheFolder = Annotated[
    Path | None,
    _model(
        "--cache-dir",
        callback=use_cache_folder,
        metavar="FOLDER",
        help="Where downloaded models are.",
        show_default="HF_HUB_CACHE, or Hugging Face's own",
    ),
]


def times(written: str) -> int | None:
    """How often: `5`, or None for `inf`; raises `UsageError` for anything else."""
    text = written.strip().lower()
    if not re.fullmatch(r"[0-9]{1,9}|inf", text):
        raise UsageError(f"{written!r} is not a number of times", "write it as 5, 0 or inf")
    return None if text == "inf" else int(text)


@dataclass(frozen=True)
class ConnectingOptions:
    """How cameras and streams are reached."""

    timeout: Annotated[
        float, _playing(metavar="SECONDS", min=0.1, help="Wait so long for a connection, and for each picture.")
    ] = 10.0
    rtsp_transport: Annotated[Literal["tcp", "udp"], _playing(help="What RTSP sends its pictures by.")] = "tcp"
    reconnect: Annotated[
        str, _playing(metavar="N|inf", help="Connect again so often in a row when a connection is lost.")
    ] = "5"
    password_file: Annotated[
        Path | None,
        _playing(metavar="FILE", help="The password for the user in an address, as in HERMES_RTSP_PASSWORD."),
    ] = None

    def connecting(self) -> Connecting:
        """The same for the library; raises `UsageError` for a bad number, or a file that cannot be read."""
        connecting = Connecting(self.timeout, self.rtsp_transport, times(self.reconnect))
        return connecting if self.password_file is None else replace(connecting, password=self._password(self.password_file))

    @staticmethod
    def _password(file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(f"--password-file {file} cannot be read: {reason}", "check the path") from None


@dataclass(frozen=True)
class PlayingOptions:
    """What is played, how densely it is sampled, and how fast."""

    reaching: ConnectingOptions
    fps: Annotated[float, _playing(metavar="RATE", help="Frames taken per second of the video, by timestamp.")] = 1.0
    start: Annotated[str, _playing(metavar="TIME", help="Play from here: 03:20, 200, 50%, -30s from the end.")] = "start"
    end: Annotated[str, _playing(metavar="TIME", help="Play up to here.")] = "end"
    realtime: Annotated[
        bool | None,
        _playing(
            "--realtime/--fast",
            help="Play a video by the clock, or as fast as it can be read. A live source always goes by the clock.",
            show_default="fast",
        ),
    ] = None
    speed: Annotated[float | None, _playing(metavar="X", help="Play a video by the clock, X times as fast.")] = None
    buffer: Annotated[
        Buffering,
        _playing(help="When the model is slower than a live source: latest skips to its newest frame, all queues some."),
    ] = "latest"

    def __post_init__(self) -> None:
        if self.speed is not None and self.realtime is not None:
            raise UsageError("--speed excludes --realtime and --fast", "leave out the one that you do not mean")

    def open(self, source: str) -> Film:
        """The part of a source that is played; raises `SourceError` or `UsageError`."""
        return Film.open(source, self.fps, self.start, self.end, self.pacing(), self.reaching.connecting())

    def pacing(self) -> Pacing:
        """How fast; raises `UsageError` for a speed that is none."""
        return Pacing(1.0 if self.realtime else self.speed, self.buffer)


@dataclass(frozen=True)
class ModelOptions:
    """Which model, and where it runs."""

    model: Annotated[
        str | None,
        _model(
            "--model",
            "-m",
            envvar="HERMES_MODEL",
            metavar="ALIAS|ID|FOLDER",
            help="Alias (hermes models lists them), Hugging Face id or folder of the checkpoint.",
            show_default="the best one that is downloaded and fits this machine",
        ),
    ] = None
    device: Annotated[
        str,
        _model(
            metavar="auto|cpu|cuda|cuda:N,...|mps",
            help="Where the model runs; auto takes several GPUs where one is too small.",
        ),
    ] = "auto"
    dtype: Annotated[DtypeName, _model(help="Precision of the weights; auto is bf16 on a GPU and fp32 on a CPU.")] = "auto"
    quant: Annotated[QuantName, _model(help="Hold the language layers' weights in 8 or 4 bits.")] = "none"
    cuda_graphs: Annotated[
        bool,
        _model(
            "--cuda-graphs/--no-cuda-graphs",
            help="Read questions and answers through CUDA graphs, which is faster: on one GPU, without --quant.",
        ),
    ] = True
    max_pixels: Annotated[
        int | None,
        _model(
            parser=pixels,
            metavar="PIXELS",
            help="Scale frames down to this many, where a model takes frames of any size: 300k, 640x480.",
            show_default="392 tokens for two frames",
        ),
    ] = None
    cache_dir: CacheFolder = None
    offline: Annotated[
        bool,
        _model(
            "--offline",
            envvar="HERMES_OFFLINE",
            callback=stay_offline,
            help="Use only models that are downloaded; never ask the hub.",
        ),
    ] = False
    prompt_style: Annotated[
        PromptStyleName,
        _model(help="template: the checkpoint's own chat template; released: the literals of the HERMES authors' code."),
    ] = "template"


@dataclass(frozen=True)
class MethodOptions:
    """Constants of the memory: a preset, and changes to it."""

    preset: Annotated[
        str,
        _memory(
            **choice(tuple(PRESETS)),
            help="Constants of the method: those that measured best here, as in the paper, or as in one of the two paths of"
            " the authors' code.",
        ),
    ] = "default"
    budget: Annotated[
        int | None,
        _memory("--budget", "--kv-budget", parser=tokens, metavar="TOKENS", **knob(MemoryConfig, "budget")),
    ] = None
    chunk_frames: Annotated[int | None, _memory("--chunk", metavar="FRAMES", **knob(MemoryConfig, "chunk_frames"))] = None
    guidance: Annotated[str | None, _memory(**knob(MemoryConfig, "guidance"))] = None
    reindex: Annotated[str | None, _memory(**knob(MemoryConfig, "reindex"))] = None

    def config(self) -> MemoryConfig:
        """The constants; raises `UsageError` for one out of range."""
        return MemoryConfig.preset(self.preset, **given(self, "budget", "chunk_frames", "guidance", "reindex"))


@dataclass(frozen=True)
class MemoryOptions:
    """A way of forgetting, and its constants."""

    method: MethodOptions
    policy: Annotated[
        PolicyName,
        _memory(
            help="How to forget. fifo keeps the newest tokens, recent the newest frames, uniform frames evenly over time;"
            " attention, streammem and infinipot rank as other papers do; full forgets nothing (unbounded)."
        ),
    ] = "hermes"


SessionOption = Annotated[
    str | None, _saving("--session", metavar="ID", help="A session by its ID, the start of it, or its name.")
]


@dataclass(frozen=True)
class KeepingOptions:
    """Whether a run becomes a session, which `hermes ask` can go back to."""

    save: Annotated[
        bool, _saving("--save/--no-save", help="Keep the answers, and the memory as it was at moments of the video.")
    ] = True
    name: Annotated[str | None, _saving(metavar="NAME", help="A name for the session, beside its ID.")] = None
    session_size: Annotated[
        int | None,
        _saving(
            parser=nbytes,
            metavar="SIZE",
            help="Room on the disk for saved memories (2GiB, 500MB), and as much for --record; old ones make room.",
            show_default="by the model, 8GiB at most; 4GiB for --record",
        ),
    ] = None


@dataclass(frozen=True)
class SavingOptions(KeepingOptions):
    """The same, and whether its frames are kept too."""

    record: Annotated[
        bool,
        _saving(
            "--record",
            help="Keep the frames too, so that any moment can be asked about exactly when the source is gone.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.record and not self.save:
            raise UsageError("--record and --no-save exclude each other", "leave out the one that you do not mean")


@dataclass(frozen=True)
class AnswerOptions:
    """How answers are decoded: fields of `Sampling`, whose defaults hold for what is not given."""

    max_new_tokens: Annotated[int | None, _answering(metavar="N", **knob(Sampling, "max_new_tokens"))] = None
    temperature: Annotated[float | None, _answering(metavar="X", **knob(Sampling, "temperature"))] = None
    top_p: Annotated[float | None, _answering(metavar="P", **knob(Sampling, "top_p"))] = None
    repetition_penalty: Annotated[float | None, _answering(metavar="X", **knob(Sampling, "repetition_penalty"))] = None
    seed: Annotated[int | None, _answering(metavar="N", **knob(Sampling, "seed"))] = None

    def sampling(self) -> Sampling:
        """The settings; raises `UsageError` for one out of range."""
        return Sampling(**given(self))

    evidence: Annotated[bool | None, _answering("--evidence/--no-evidence", **knob(Sampling, "evidence"))] = None


@dataclass(frozen=True)
class OutputOptions:
    """What is written, and how. Standard output has the answers, standard error the rest."""

    json: Annotated[bool, _output("--json", help="Write each answer as one JSON object on a line.")] = False
    json_lines: Annotated[
        bool, _output("--json-lines", help="Write every event (start, chunk, answer, warning, end) as a JSON object.")
    ] = False
    no_stream: Annotated[bool, _output("--no-stream", help="On a terminal too, write an answer when it is whole.")] = False
    quiet: Annotated[bool, _output("--quiet", "-q", help="Answers and errors only.")] = False
    verbose: Annotated[
        int,
        _output(
            "--verbose",
            "-v",
            count=True,
            callback=choose_verbosity,
            metavar="",
            show_default=False,
            help="Add timings and the libraries' messages; -vv adds tracebacks of unexpected errors.",
        ),
    ] = 0
    progress: Annotated[
        Literal["auto", "plain", "none"],
        _output(help="auto: a bar on a terminal; plain: a line every few seconds, for logs."),
    ] = "auto"
    panel: Annotated[
        Literal["auto", "full", "compact", "off"],
        _output(help="Size of the live panel under the prompt; auto goes by that of the terminal."),
    ] = "auto"
    ascii: Annotated[bool, _output("--ascii", help="Draw with ASCII characters only.")] = False
    color: Annotated[
        Literal["auto", "always", "never"], _output(help="auto obeys NO_COLOR; answers are never coloured.")
    ] = "auto"

    def __post_init__(self) -> None:
        if self.json and self.json_lines:
            raise UsageError("--json and --json-lines exclude each other", "--json-lines has the answers too")


@dataclass(frozen=True)
class Settings:
    """The options that every command that plays a video has."""

    playing: PlayingOptions
    model: ModelOptions
    memory: MemoryOptions
    answering: AnswerOptions
    output: OutputOptions
