"""What runs inside worker processes, under the worker interpreter.

Only these modules import torch and triton. They need nothing else beyond the standard library and numpy, since the
worker interpreter need not have this package's other dependencies installed. They are reached through `boot.py`.
"""
