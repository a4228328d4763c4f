"""The command line of hermes: a reader of the library's events. `hermes` never imports this package."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells report it. It stands here because importing more can be interrupted."""
