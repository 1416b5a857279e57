"""Run the command line as `python -m adaexplore_mcp`."""

import sys

from adaexplore_mcp.cli import main

sys.exit(main())
