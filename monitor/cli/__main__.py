"""The command as a module: ``python -m monitor.cli``."""

from monitor.cli.main import main

main()
