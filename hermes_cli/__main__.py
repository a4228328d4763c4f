"""`python -m hermes_cli`, the same as `hermes`."""

from hermes_cli.app import main

raise SystemExit(main())
