"""The command line with stand-ins behind the tools: `python stand_in_server.py serve --home …`."""

import sys

import stand_ins

from adaexplore_mcp import cli

sys.modules[stand_ins.CONNECT] = stand_ins  # so that the real domains are not even imported
sys.exit(cli.main())
