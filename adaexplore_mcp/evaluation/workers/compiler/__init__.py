"""Compile what a candidate launches, for a GPU that need not be there: languages errors, registers, spills, limits.

    compiler = Compiler.install(target("sm_90"), device_of=standin.on_device)
    with compiler.session(time_limit_s=60) as session:
        ModelNew(*init_inputs)(*inputs)
    session.builds, session.launches, session.notes
    explain(exception, files=[candidate_path])

Every `kernel[grid](...)` is specialised, compiled and checked against the target's limits as on the machine; nothing
runs. Installation is for the whole process: fork a child per candidate and target, after `warm_up` in the parent.
"""

from .capture import last_words
from .explain import explain, is_declaration
from .installation import Compiler
from .records import Build, ErrorExcerpt, FailureKind, Launch, Resources
from .resources import CompileTimeout
from .session import Session
from .versions import keep_cache_in
from .warm import warm_up

__all__ = [
    "Build",
    "CompileTimeout",
    "Compiler",
    "ErrorExcerpt",
    "FailureKind",
    "Launch",
    "Resources",
    "Session",
    "explain",
    "is_declaration",
    "keep_cache_in",
    "last_words",
    "warm_up",
]
