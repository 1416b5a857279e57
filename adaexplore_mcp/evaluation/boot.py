"""Start a module of this package by path, under any interpreter.

    python -P boot.py MODULE ARGUMENT…

The worker interpreter need not have this package installed, and must not see the server's other packages, which may be
built for another Python. So the package is set up here by hand: only its own modules become importable, nothing beside
them. The module's `main(arguments)` runs and gives the exit code.
"""

import importlib
import sys
import types
from pathlib import Path


def main() -> int:
    """Set up the package and run the module named on the command line."""
    package = types.ModuleType("adaexplore_mcp")
    package.__path__ = [str(Path(__file__).resolve().parents[1])]
    sys.modules["adaexplore_mcp"] = package
    module = importlib.import_module(f"adaexplore_mcp.{sys.argv[1]}")
    return int(module.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
