"""The command line of hermes: a reader of the library's events. `hermes` never imports this package."""
