"""The entry point of `hermes` and of `python -m hermes_cli`."""

import sys

from hermes_cli import INTERRUPTED


def main() -> int:
    """Run the program and return its exit code, also when Ctrl-C comes while its modules are still being imported, or when
    one of the packages they need is broken."""
    try:
        from hermes_cli import app  # noqa: PLC0415 - takes a while

        return app.main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except ImportError as error:
        hint = "install it again: pip install --force-reinstall hermes-video"
        sys.stderr.write(f"error: a package that hermes needs cannot be loaded: {error}\nhint: {hint}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
