"""AdaExplore MCP: compile, verify and remember the GPU kernels a coding agent writes."""

__version__ = "0.1.0"
