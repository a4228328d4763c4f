"""The entry point of `hermes` and of `python -m hermes_cli`."""

from hermes_cli import INTERRUPTED


def main() -> int:
    """Run the program and return its exit code, also when Ctrl-C comes while its modules are still being imported."""
    try:
        from hermes_cli import app  # noqa: PLC0415 - takes a while

        return app.main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
