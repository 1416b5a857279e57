"""Fingerprints of failures: the kind of error and the class of construct, and nothing of the one kernel.

What the server, the machine or a reference did wrong has none. A message that no kind knows is reduced to its skeleton:
names, numbers, shapes, types and addresses taken out, the construct at which compilation stopped kept.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from adaexplore_mcp.models import Outcome
from adaexplore_mcp.rules.kinds import CHECKS, KINDS, SAME_CHECK, Kind, Subject, constructs_in_words
from adaexplore_mcp.rules.ownwords import says_something
from adaexplore_mcp.rules.vocabulary import LANGUAGE_FUNCTIONS, TORCH_FUNCTIONS, VOCABULARY

__all__ = ["Fingerprint", "Observation", "fingerprint_of", "observed", "parsed", "wording"]

FAILING = frozenset(
    {"incorrect", "compile_error", "runtime_error", "timeout", "out_of_memory", "crashed", "rejected"}
)
STAGES = frozenset({"load", "construct", "run", "compile", "launch", "interpreter", "compare"})
"""Stages of a candidate; whatever fails at another one is ours or the machine's."""
COMPILING = frozenset({"compile", "launch", "interpreter"})
OURS = frozenset({
    "ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "TimeoutError", "ReadTimeout",
    "ConnectTimeout", "HTTPError", "URLError", "MaxRetryError", "NewConnectionError", "gaierror",
})  # fmt: skip
"""Exceptions of a network that no kernel has a reason to use."""
NO_CUDA = re.compile(
    r"Torch not compiled with CUDA enabled"
    r"|PyTorch (?:was )?compiled without (?:CUDA support|support for the specified device)"
    r"|(?:.*has no attribute|cannot import name) '_cuda_\w+'"
)
"""What torch says where it was built without CUDA: the machine's fault."""
FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"})
KNOWN_ROOTS = {"tl", "triton", "torch", "math", "np", "numpy", "F"}
KNOWN_KEYWORDS = frozenset({"meta", "num_warps", "num_stages", "num_ctas", "grid", "stream", "device"})
EXCEPTIONS = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "CompilationError", "ImportError", "IndexError", "KeyError",
    "ModuleNotFoundError", "NameError", "NotImplementedError", "OSError", "OutOfMemoryError", "OverflowError", "RecursionError",
    "RuntimeError", "StopIteration", "TypeError", "UnboundLocalError", "UnsupportedLanguageConstruct", "ValueError",
    "ZeroDivisionError", "IncompatibleTypeErrorImpl",
})  # fmt: skip
"""Classes whose name may stand in a rule: all others are an author's."""
MAX_NAME = 30
MAX_SKELETON = 110
_STATIC_ASSERT = next(kind for kind in KINDS if kind.id == "static_assert")

_LOCATED = re.compile(r"at (?P<line>\d+):(?P<column>\d+):\n")
_REPR = re.compile(
    r"(?P<type>[A-Z]\w+)\((?P<text>(?P<quote>['\"]).*?(?P=quote)(?=,?\)$)|['\"].*|)", re.DOTALL
)
_TYPED = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*): ?")
_WORDS = "Triton's words: "
_HINT = "\nHint: "
_WHILE = re.compile(r" \((?:error encountered during parsing, )?(?:[\w ]+, )?while compiling \w+\)$")
_SKELETON = (
    (re.compile(r"0x[0-9a-fA-F]+"), ""),
    (re.compile(r"<[^<>]*>"), "<>"),
    (re.compile(r"\[[^\[\]]*\]"), "[]"),
    (re.compile(r"/[\w./-]+"), "PATH"),
    (re.compile(r"(['\"`]).*?\1"), "NAME"),
    (re.compile(r"\b(?:u?int|fp|bf|float|bfloat)(?:8|16|32|64)\w*\b|\bint1\b"), "TYPE"),
    (re.compile(r"\b\w*(?:_\w+|[a-z][A-Z]\w*)\b"), "NAME"),
    (re.compile(r"-?\d+(?:\.\d+)?"), "N"),
    (re.compile(r"\b(argument|element|dimension|value|tensor|operand)s\b"), r"\1"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Observation:
    """A failure as it was seen.

    Args:
        stage: load, construct, run, compile, launch, interpreter or compare.
        type: Class of the exception, or empty.
        message: Its text.
        source: The line of source at which it happened; empty where none is known.
        column: Where on that line, from 0; -1 where unknown.
        check: The check that decided, if one did.
        kernel: The Triton kernel in which it happened.
        blameless: The reference fails too, or the machine was at fault.
    """

    stage: str
    type: str = ""
    message: str = ""
    source: str = ""
    column: int = -1
    check: str = ""
    kernel: str = ""
    blameless: bool = False


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What all failures of one kind have in common.

    Args:
        kind: The kind of error.
        construct: The class of construct.
        subject: What the rule is about.
        words: The rule, `{names}` for the names seen.
        names: Names of an API that this failure shows, such as `tanh`.
    """

    kind: str
    construct: str
    subject: Subject
    words: str
    names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Equal for equal mistakes."""
        return f"{self.kind}:{self.construct}"


def observed(outcome: Outcome) -> Observation | None:
    """Return the failure that an outcome tells of, or None where nobody failed but us, or nobody at all."""
    if outcome.status not in FAILING:
        return None
    error = outcome.error
    if outcome.status == "out_of_memory" and error is None and "not to blame" in outcome.next_step:
        return None  # somebody else had the GPU's memory
    if outcome.check == "signal" and error is not None and error.type in FROM_OUTSIDE:
        return None  # no access ends a process so: somebody did, or the machine was short of memory
    if outcome.check in CHECKS:
        return Observation(stage=outcome.stage, check=outcome.check)
    if error is None:
        return Observation(stage=outcome.stage, check=outcome.check) if outcome.check else None
    stage: str = outcome.stage
    if stage == "compile" and error.kernel and error.type in {"TypeError", "KeyError", "AssertionError"}:
        stage = "launch"
    return Observation(
        stage=stage, type=error.type, message=error.message, source=error.source, kernel=error.kernel
    )


def parsed(text: str, *, stage: str, source: str = "", blameless: bool = False) -> Observation:
    """Read a failure from the text of an exception, with or without Triton's excerpt of the kernel.

    Args:
        text: Such as `triton.compiler.errors.CompilationError: at 2:11: …`.
        stage: Where it happened.
        source: The line of source, where the text holds none.
        blameless: The reference fails too.
    """
    if text.strip() == "incorrect output":
        return Observation(stage="compare", check="values", blameless=blameless)
    kind, rest = "", text.strip("\n")
    while (typed := _TYPED.match(rest)) is not None:
        kind, rest = typed["type"].rpartition(".")[2], rest[typed.end() :]
    column = -1
    # The excerpts of helper functions follow one another, innermost last.
    while (located := _LOCATED.match(rest)) is not None:
        lines = rest[located.end() :].split("\n")
        caret = next((number for number, line in enumerate(lines) if line.strip() == "^"), None)
        if caret is None:
            break
        source, column = (lines[caret - 1] if caret else ""), lines[caret].index("^")
        rest = "\n".join(lines[caret + 1 :])
    else:
        lines = rest.split("\n")
        caret = next((number for number, line in enumerate(lines) if line.strip() == "^"), None)
        if caret is not None:
            source = lines[caret - 1] if caret else source
            column = lines[caret].index("^") if caret else -1
            rest = "\n".join(lines[caret + 1 :])
    rest = rest.strip()
    if (shown := _REPR.match(rest)) is not None:
        kind = shown["type"]
        try:
            rest = str(ast.literal_eval(shown["text"]))
        except (SyntaxError, ValueError):
            rest = shown["text"].strip("'\"")
    return Observation(
        stage=stage, type=kind, message=rest, source=source, column=column, blameless=blameless
    )


def fingerprint_of(seen: Observation) -> Fingerprint | None:
    """Return the fingerprint of a failure; None where no rule may be learned from it."""
    if seen.blameless or seen.stage not in STAGES or seen.type in OURS:
        return None
    if seen.check in CHECKS:
        check = SAME_CHECK.get(seen.check, seen.check)
        subject, words = CHECKS[check]
        return Fingerprint("check", check, subject, words)
    if seen.type == "CompileTimeAssertionFailure":
        return Fingerprint("static_assert", "tl.static_assert", _STATIC_ASSERT.subject, _STATIC_ASSERT.words)
    message = _said(seen)
    if NO_CUDA.match(message):
        return None
    if not message or not (seen.type or seen.stage in COMPILING):
        return None
    if seen.type in {"SyntaxError", "IndentationError", "TabError"}:
        return Fingerprint("syntax", "source", "host", "You cannot submit a source that is not valid Python.")
    if message.startswith("Did you forget to add @triton.jit"):
        return _outside_jit(seen)
    for kind in KINDS:
        if kind.stages and seen.stage not in kind.stages:
            continue
        found = kind.regex.match(message)
        if found is not None:
            return _of_kind(kind, found)
    return _of_skeleton(seen, message)


def wording(fingerprint: Fingerprint, names: tuple[str, ...] = ()) -> str:
    """Return the first wording of a rule, at most 200 characters.

    Args:
        fingerprint: Of the failure.
        names: All names that were seen; those of the fingerprint where there are none.
    """
    construct = constructs_in_words(fingerprint.kind, fingerprint.construct)
    listed = list(names or fingerprint.names)
    shown = ", ".join(listed[:4]) + (", …" if len(listed) > 4 else "") if listed else "names"
    return fingerprint.words.replace("{construct}", construct).replace("{names}", shown)[:200]


def _said(seen: Observation) -> str:
    """Return the compiler's own words: without our hints, the call they are prefixed with, and the kernel's name."""
    message = seen.message.partition(_HINT)[0]
    if _WORDS in message:
        message = message.partition(_WORDS)[2]
    message = _WHILE.sub("", message.strip())
    if seen.type == "KeyError" and message[:1] in {"'", '"'}:
        message = message.strip("'\"")  # the text of a KeyError is the repr of its argument
    if seen.kernel:
        message = message.replace(f"{seen.kernel}()", "KERNEL()")
    # The call that the message is prefixed with may hold an author's expression: `(rows + cols).reshape: …`.
    call = re.match(
        r"[^:\n\"']{0,160}?\b\w+\.(?:\w+): (?!got |missing |create_)|[^:\n]{0,160}?\)\.\w+: (?!got |missing |create_)",
        message,
    )
    if call is not None:
        message = message[call.end() :]
    if re.match(r"(?:break|continue|return|lambda): ", message):
        message = message.partition(": ")[2]
    return message


def _of_kind(kind: Kind, found: re.Match[str]) -> Fingerprint:
    groups = found.groupdict()
    construct = kind.construct or "any"
    said = groups.get("construct")
    if kind.id == "name_missing":
        construct = "triton.language" if kind.subject == "language" else str(said)
    elif kind.id == "operand_is_no_block" or (kind.id == "name_missing" and said):
        construct = str(said)
    elif kind.id == "foreign_function":
        root = str(said).split(".")[0]
        construct = (
            f"functions of {root}"
            if root in KNOWN_ROOTS and "." in str(said)
            else "a function that is not @triton.jit"
        )
    elif kind.id in {"call_keyword", "call_arguments", "call_builtin"}:
        construct = _api(str(said)) if said else construct
    elif said:
        construct = said.lower() if kind.id == "unsupported_node" else said
    name = groups.get("name")
    if name and (len(name) > MAX_NAME or name.count("_") > 3 or says_something(name)):
        name = None  # no API has such a name: an author's words
    names: tuple[str, ...] = ()
    if name and kind.id == "launch_keyword":
        names = (name,) if name in KNOWN_KEYWORDS else ()
    elif name and kind.id == "call_keyword":
        names = (name,) if construct != "a function" else ()
    elif name:
        names = (name,)
    words = kind.words
    if kind.id == "call_keyword" and not names:
        words = "You cannot pass a keyword to a function that has no such parameter."
    if kind.id == "not_callable" and construct == "any":
        construct = "value"
    return Fingerprint(kind.id, construct, kind.subject, words, names)


def _api(name: str) -> str:
    if name not in LANGUAGE_FUNCTIONS:
        return "a function"
    if name in {"Config", "autotune", "jit"}:
        return f"triton.{name}"
    return f"torch.{name}" if name in TORCH_FUNCTIONS else f"tl.{name}"


def _outside_jit(seen: Observation) -> Fingerprint:
    """Tell the causes of one message by the construct at which it was raised."""
    at = construct_at(seen.source, seen.column)
    if at == "index" and seen.stage != "interpreter":
        kind = next(each for each in KINDS if each.id == "index_block")
        return Fingerprint(kind.id, "block", kind.subject, kind.words)
    if at == "function" or seen.stage == "interpreter":
        construct = "a nested or undecorated function"
    elif seen.stage in {"compile", "launch"}:
        construct = "where a kernel does not pass its builder on"
    else:
        construct = "code that is no @triton.jit function"
    return Fingerprint(
        "outside_jit", construct, "language", "You cannot call functions of triton.language from {construct}."
    )


def construct_at(source: str, column: int) -> str:
    """Return the class of construct at a place of a line: index, call:<name>, function, for, if, …; empty if unknown."""
    nodes = list(_nodes(source))
    shift = len(source) - len(source.lstrip())
    if column >= 0:
        nodes = [node for node in nodes if getattr(node, "col_offset", -1) == column - shift]
    for node in nodes:
        match node:
            case ast.FunctionDef():
                return "function"
            case ast.Subscript() if _indexes_a_value(node):
                return "index"
            case ast.Call() if column >= 0:
                function = node.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                return f"call:{name}"
            case ast.For() | ast.While() | ast.If() if column >= 0:
                return type(node).__name__.lower()
    return ""


def _indexes_a_value(node: ast.Subscript) -> bool:
    """Tell `v[i]` from `v[:, None]`, which only adds an axis."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return not all(
        (isinstance(part, ast.Constant) and part.value is None)
        or (isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None)
        for part in parts
    )


def _nodes(source: str) -> Iterator[ast.AST]:
    text = source.strip()
    for attempt in (text, f"{text}\n pass", f"{text}\n    pass", f"if 1:\n pass\n{text}\n pass"):
        try:
            tree = ast.parse(attempt)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield from (node for node in ast.walk(tree) if hasattr(node, "col_offset"))
        return


def _of_skeleton(seen: Observation, message: str) -> Fingerprint:
    """Return the fingerprint of what no kind knows.

    A message of host code may be its author's own words, so of that only the class of a known exception is kept. Of the
    compiler's messages the words that compilers use are.
    """
    kind = seen.type if seen.type in EXCEPTIONS else "an exception of its own"
    if seen.stage in {"run", "construct", "load", "launch"}:
        checks = kind == "AssertionError" or seen.source.lstrip().startswith("raise ")
        if checks and seen.stage == "load":
            text = "You cannot raise where a candidate is imported."
            return Fingerprint("own_check", "import", "host", text)
        if checks:
            text = "You cannot call a candidate with inputs that its own checks refuse."
            return Fingerprint("own_check", "host", "host", text)
        if seen.kernel and seen.stage == "run":
            return Fingerprint(
                "other", f"kernel:{kind}", "language", f"You cannot write a Triton kernel that raises {kind}."
            )
        where = "at a launch" if seen.stage == "launch" else "in host code"
        subject: Subject = "launch" if seen.stage == "launch" else "host"
        return Fingerprint(
            "other", f"{subject}:{kind}", subject, f"You cannot do {where} what raises {kind}."
        )
    first = message.strip().split("\n")[0]
    for pattern, replacement in _SKELETON:
        first = pattern.sub(replacement, first)
    words = [word if word.lower() in VOCABULARY else "…" for word in re.findall(r"\w+", first)]
    said = re.sub(r"…(?: …)+", "…", " ".join(words[:16]))
    at = construct_at(seen.source, seen.column)
    call = at.removeprefix("call:") if at.startswith("call:") else ""
    name = _api(call) if call in LANGUAGE_FUNCTIONS else ""
    digest = hashlib.sha256(first[:MAX_SKELETON].encode()).hexdigest()[:8]
    doing = f"call {name} so" if name else "write a Triton kernel so"
    return Fingerprint(
        "other",
        f"{name or 'kernel'}:{kind}:{digest}",
        "language",
        f"You cannot {doing} that compiling raises {kind}: {said}."[:200],
    )
