"""The panel in three sizes, as lines of text; those of the larger two may still be wider than the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from rich.text import Text

from hermes.config import Role
from hermes_cli.panel import words
from hermes_cli.panel.charts import ROLE_LETTERS, ROLE_STYLES, Column, chart, columns, letters, time_bar
from hermes_cli.panel.glyphs import Glyphs
from hermes_cli.panel.state import PanelState
from hermes_cli.panel.timing import Timing

Lines = list[Text]

_GAP = 4  # cells between two blocks side by side
_HEADING = "bold"


def full(state: PanelState, width: int, glyphs: Glyphs) -> Iterator[Lines]:
    """Everything: with a legend, without it, and without blank lines either."""
    sections = [
        [_names(state, width, glyphs), _time_line(state, width, glyphs), _counts(state, glyphs)],
        _charts(state, width, glyphs),
        [*_roles(state, glyphs), _top_position(state, glyphs)],
        _beside(_forgetting(state, glyphs), _speeds(state, glyphs), _half(width)),
    ]
    yield _spaced([*sections, _legend(glyphs)])
    yield _spaced(sections)
    yield [line for section in sections for line in section]


def compact(state: PanelState, width: int, glyphs: Glyphs) -> Lines:
    """The essentials, with a single line of cells for the layers."""
    shown = columns(state, width)
    return [
        _time_line(state, width, glyphs),
        Text(f"tokens held per layer: {_held(state, glyphs)}", _HEADING),
        *chart(shown, _filled, width, 1, glyphs),
        letters(shown, width, glyphs),
        *_roles(state, glyphs, brief=True),
        *(_joined(facts, width, glyphs) for facts in _forgetting_facts(state, glyphs)),
        _joined(_known_speeds(state, glyphs), width, glyphs),
    ]


def one_line(state: PanelState, width: int, glyphs: Glyphs) -> Lines:
    """The time, and as much else as there is room for."""
    clock = words.playhead(state)
    facts = [
        clock if len(clock) <= width else words.short_clock(state),
        words.condition(state, glyphs),
        f"{_held(state, glyphs)} tokens",
        *_known_speeds(state, glyphs),
    ]
    return [_joined(facts, width, glyphs)]


def _names(state: PanelState, width: int, glyphs: Glyphs) -> Text:
    setting = state.setting
    source = Text(words.name(setting.source, glyphs), _HEADING)
    source.truncate(width // 2, overflow=glyphs.cut)
    model = Text(f"{words.name(setting.model, glyphs)}, {words.name(setting.policy, glyphs)} memory", _HEADING)
    model.truncate(width - source.cell_len - _GAP, overflow=glyphs.cut, pad=True)
    return Text.assemble(model, " " * _GAP, source)


def _time_line(state: PanelState, width: int, glyphs: Glyphs) -> Text:
    clock, condition = Text(words.playhead(state), _HEADING), Text(words.condition(state, glyphs), _HEADING)
    room = max(width - clock.cell_len - condition.cell_len - 4, 0)
    share = state.setting.goal.share(state.tally)
    bar = Text(" " * room) if share is None else time_bar(share, room, glyphs)
    return Text.assemble(clock, "  ", bar, "  ", condition)


def _counts(state: PanelState, glyphs: Glyphs) -> Text:
    tally = state.tally
    counts = {"frame": tally.frames, "chunk": tally.chunks, "compression": tally.compressions, "answer": tally.answers}
    frames, *others = (words.counted(count, noun, glyphs) for noun, count in counts.items())
    return Text(", ".join([f"{frames} ({tally.waiting} waiting for their chunk)", *others]), "dim")


def _charts(state: PanelState, width: int, glyphs: Glyphs) -> Lines:
    """What is held and how old it is: side by side, or one above the other where there are many layers."""
    half = _half(width)
    abreast = len(state.setting.roles) <= half
    room, rows = (half, 3) if abreast else (width, 2)
    shown, budget = columns(state, room), state.setting.goal.budget
    bound = "" if budget is None else f", at most {words.number(budget, glyphs)}"
    held = [Text(f"tokens held per layer{bound}", _HEADING), *chart(shown, _filled, room, rows, glyphs)]
    ages = [Text("their age, of the time played", _HEADING), *chart(shown, _age, room, rows, glyphs)]
    for block in (held, ages):
        block.append(letters(shown, room, glyphs))
    return _beside(held, ages, half) if abreast else [*held, *ages]


def _half(width: int) -> int:
    return (width - _GAP) // 2


def _filled(column: Column) -> float:
    return column.filled


def _age(column: Column) -> float:
    return column.age


def _roles(state: PanelState, glyphs: Glyphs, brief: bool = False) -> Lines:
    """A table of the roles; a brief one leaves out what the rest of the panel says."""
    heads = ["role", "layers", "tokens held", "summaries", "oldest frame", "positions", "left"]
    rows, styles = [heads], [""]
    for layers in state.layers_by_role():
        left = None if layers.positions is None else state.setting.max_positions - 1 - layers.positions[1]
        row = [
            f"{ROLE_LETTERS[layers.role]} {layers.role.value}",
            words.between(layers.numbers, glyphs),
            words.held(layers.tokens, state, glyphs),
            words.between(layers.summaries, glyphs),
            words.moment(layers.oldest_s, glyphs),
            words.between(layers.positions, glyphs),
            words.number(left, glyphs),
        ]
        rows.append(row)
        styles.append(ROLE_STYLES[layers.role])
    return _table([row[:2] + row[3:] for row in rows] if brief else rows, styles)


def _top_position(state: PanelState, glyphs: Glyphs) -> Text:
    """How near the model's limit is, and when positions were last counted anew."""
    most = state.setting.max_positions
    top = state.chunk.top_position if state.chunk else None
    line = Text(f"highest position {words.number(top, glyphs)} of {words.number(most, glyphs)}")
    if top is not None:
        line.append(f" ({top / most:.0%})", _load_style(top / most))
    if renumbered := state.renumbering:
        before, after = (words.number(end, glyphs) for end in (renumbered.before, renumbered.after))
        line.append(f", renumbered at {words.moment(renumbered.at_s, glyphs)}: {before} {glyphs.becomes} {after}")
    else:
        line.append(", not renumbered so far")
    return line


def _forgetting(state: PanelState, glyphs: Glyphs) -> Lines:
    steps = {"guidance": state.guidance, "scoring": state.scoring, "moving": state.moving, "together": state.forgetting}
    heads = ["forgetting", "last", "mean", "p95", "of time"]
    rows = [[step, *_milliseconds(timing, state, glyphs)] for step, timing in steps.items()]
    return _table([heads, *rows])


def _milliseconds(timing: Timing, state: PanelState, glyphs: Glyphs) -> list[str]:
    numbers = [words.milliseconds(ms, glyphs) for ms in (timing.last, timing.mean, timing.p95)]
    return [*numbers, words.percent(state.share_of_time(timing), glyphs)]


def _speeds(state: PanelState, glyphs: Glyphs) -> Lines:
    lines = [Text(f"{label:<12}{fact or glyphs.unknown}") for label, fact in _speed_facts(state, glyphs).items()]
    lines[-1].stylize(_load_style(state.vitals.gpu_share), 12)
    return lines


def _load_style(share: float | None) -> str:
    return "" if share is None else "green" if share < 0.7 else "yellow" if share < 0.9 else "red"


def _legend(glyphs: Glyphs) -> Lines:
    shallow, middle, deep = ((f"{ROLE_LETTERS[role]} {role.value}", f"not dim {ROLE_STYLES[role]}") for role in Role)
    return [
        Text("A column is a layer of the model, its age that of its median token.", "dim"),
        Text.assemble(
            shallow, " layers keep what is new, ", deep, " ones what matters, ", middle, " ones both.", style="dim"
        ),
        Text(f"{glyphs.summary} the layer holds a summary token, which stands for many that it dropped.", "dim"),
        Text("Positions number the tokens; renumbering keeps them below the model's limit.", "dim"),
        Text("Forgetting reads generic questions as guidance, scores tokens, moves what stays.", "dim"),
    ]


def _forgetting_facts(state: PanelState, glyphs: Glyphs) -> tuple[list[str], list[str]]:
    """The parts of the newest compression; the whole of recent ones."""
    parts = {"forgetting: guidance": state.guidance, "scoring": state.scoring, "moving": state.moving}
    whole = state.forgetting
    times = {"together": whole.last, "mean": whole.mean, "p95": whole.p95}
    share = f"{words.percent(state.share_of_time(whole), glyphs)} of the time"
    return (
        [f"{part} {words.milliseconds(timing.last, glyphs)}" for part, timing in parts.items()],
        [*(f"{label} {words.milliseconds(ms, glyphs)}" for label, ms in times.items()), share],
    )


def _speed_facts(state: PanelState, glyphs: Glyphs) -> dict[str, str | None]:
    """What they are called, and None where they are unknown; the most important ones first, the memory of the GPU last."""
    pulse = state.pulse
    return {
        "encoding": words.per_second(state.encoded_fps),
        "lag": words.seconds(pulse.lag_s) if pulse else None,
        "dropped": words.counted(pulse.dropped, "frame", glyphs) if pulse else None,
        "source": words.per_second(pulse.source_fps) if pulse else None,
        "GPU memory": words.gpu_memory(state),
    }


def _known_speeds(state: PanelState, glyphs: Glyphs) -> list[str]:
    return [f"{label} {fact}" for label, fact in _speed_facts(state, glyphs).items() if fact]


def _held(state: PanelState, glyphs: Glyphs) -> str:
    tokens = state.chunk.visual_tokens if state.chunk else None
    return words.held((min(tokens), max(tokens)) if tokens else None, state, glyphs)


def _joined(facts: Iterable[str], width: int, glyphs: Glyphs) -> Text:
    """The facts in one line, without those that there is no room for."""
    line = Text()
    for fact in facts:
        more = Text(f" {glyphs.between} {fact}" if line else fact)
        if line.cell_len + more.cell_len <= width:
            line.append(more)
    return line


def _table(rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> Lines:
    """Rows of cells without wide characters, the first one headings; the first column, in its row's style, on the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row, style in zip_longest(rows, styles, fillvalue=""):
        cells = (cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append(Text.assemble((row[0].ljust(widths[0]), style), *cells))
    lines[0].stylize(_HEADING)
    return lines


def _beside(left: Lines, right: Lines, width: int) -> Lines:
    """Two blocks next to each other, the second one behind at least `width` cells."""
    width = max(width, *(line.cell_len for line in left)) + _GAP
    lines = []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        lines.append(Text.assemble(one, " " * (width - one.cell_len), other))
    return lines


def _spaced(sections: Iterable[Lines]) -> Lines:
    """Sections with a blank line between."""
    first, *others = sections
    return [*first, *(line for section in others for line in (Text(), *section))]
