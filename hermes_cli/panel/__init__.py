"""The live panel: what a run has come to, out of its events, drawn for a terminal of any size."""

from hermes_cli.panel.fitting import Color, Mode, panel, render
from hermes_cli.panel.glyphs import ASCII, UNICODE, Glyphs
from hermes_cli.panel.state import PanelState, Setting, Vitals

__all__ = [
    "ASCII",
    "UNICODE",
    "Color",
    "Glyphs",
    "Mode",
    "PanelState",
    "Setting",
    "Vitals",
    "panel",
    "render",
]
