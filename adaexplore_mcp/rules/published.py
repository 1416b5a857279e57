"""Read sets of rules that others made: `rule||count` lines, or our own JSON. What is noise is dropped, with the reason.

The texts are a stranger's: each goes through the checks of a lesson, and one whose kind is known takes the words of that kind.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from adaexplore_mcp.rules.bounds import ANYWHERE, Place, narrowest
from adaexplore_mcp.rules.kinds import CHECKS, KINDS_BY_ID, constructs_in_words
from adaexplore_mcp.rules.lessons import cleaned, objections
from adaexplore_mcp.rules.probes import STARTERS

__all__ = ["Line", "read_published"]

MAX_LINES = 20_000
_PLACE = re.compile(r"[\w .-]{1,60}")


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one line, or one entry, of a file.

    Args:
        number: Of the line or the entry, from 1.
        text: The rule, in the words it is kept with.
        key: Fingerprint of the failure it is about, or of its text.
        names: Names that it lists.
        subject: What it is about.
        count: As the file gives it; nothing is known of what it counts.
        place: What it is bound to.
        reasons: Why it was not taken; none if it was.
        malformed: It is no rule at all, not merely a bad one.
    """

    number: int
    text: str
    key: str = ""
    names: tuple[str, ...] = ()
    subject: str = "language"
    count: float = 0.0
    place: Place = ANYWHERE
    reasons: tuple[str, ...] = ()
    malformed: bool = False


def read_published(content: str) -> list[Line]:
    """Return every line of a `rule||count` file, or every entry of a JSON export, taken or not."""
    if content.lstrip().startswith(("{", "[")):
        return _of_json(content)
    found = []
    for number, line in enumerate(content.splitlines()[:MAX_LINES], 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        text, separator, count = line.rpartition("||")
        try:
            value = float(count)
        except ValueError:
            separator = ""
        if not separator:
            found.append(Line(number, line[:200], reasons=("not of the form rule||count",), malformed=True))
        elif not 0 <= value < 1e12:
            found.append(
                Line(number, line[:200], reasons=(f"the count {count.strip()[:20]} is none",), malformed=True)
            )
        else:
            found.append(_rule(number, text, value))
    return found


def _of_json(content: str) -> list[Line]:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        return [Line(line, "", reasons=(f"not valid JSON: {error}",), malformed=True)]
    entries = data.get("rules") if isinstance(data, dict) else data
    if not isinstance(entries, list):
        return [Line(1, "", reasons=("no list of rules",), malformed=True)]
    found = []
    for number, entry in enumerate(entries[:MAX_LINES], 1):
        text = entry.get("rule") if isinstance(entry, dict) else entry
        if not isinstance(text, str):
            found.append(Line(number, "", reasons=("no text under 'rule'",), malformed=True))
            continue
        support = entry.get("support", 0) if isinstance(entry, dict) else 0
        key = entry.get("kind", "") if isinstance(entry, dict) else ""
        names = entry.get("names", []) if isinstance(entry, dict) else []
        line = _rule(number, text, float(support) if isinstance(support, int | float) else 0.0)
        kind = key.partition(":")[0] if isinstance(key, str) else ""
        if not line.reasons and kind in KINDS_BY_ID and re.fullmatch(r"[\w .@:-]{3,80}", key):
            kept = tuple(each for each in names if isinstance(each, str) and re.fullmatch(r"\w{1,40}", each))[
                :60
            ]
            line = Line(number, line.text, key, kept, KINDS_BY_ID[kind].subject, line.count)
        found.append(_placed(line, entry) if isinstance(entry, dict) and not line.reasons else line)
    return found


def _placed(line: Line, entry: Mapping[str, Any]) -> Line:
    """Return a line with the dtype and the device that an export gives it: elsewhere it is not given out."""
    dtype, device = (
        value if isinstance(value := entry.get(name, ""), str) and _PLACE.fullmatch(value) else ""
        for name in ("dtype", "device")
    )
    place = Place(dtype if narrowest([dtype]) else "", device)
    if not place.mark:
        return line
    check = CHECKS.get(str(entry.get("kind", "")).partition("@")[0].removeprefix("check:"))
    subject = check[0] if check is not None else line.subject
    return replace(line, key=f"{line.key.partition('@')[0]}{place.mark}", place=place, subject=subject)


def _rule(number: int, raw: str, count: float) -> Line:
    text = cleaned(raw)
    known = _known(text)
    reasons = tuple(objections(text, imported=True))
    if known is not None and not _fatal(reasons):
        key, names, subject, words = known
        return Line(number, words, key, names, subject, count)
    if reasons:
        return Line(number, text[:200], count=count, reasons=reasons)
    return Line(number, text, f"text:{_skeleton(text)}", count=count)


def _fatal(reasons: tuple[str, ...]) -> bool:
    """Tell what must not even take the words of its kind from what merely names something of one kernel."""
    return any(
        "speaks to its reader" in each or "whoever evaluated" in each or "a line or a file" in each
        for each in reasons
    )


_T = r"(?:triton\.language|tl)"
_SAYINGS: tuple[tuple[str, str, str], ...] = (
    (rf"(?:call|access|use|reference)(?: the(?: \w+)*)?(?: {_T}\.math\.)(?P<name>\w+)", "name_missing", "triton.language"),
    (rf"(?:call|access|use|reference)(?: the)?(?: \w+)? ?{_T}\.(?P<name>\w+)(?:\(\))?(?: \w+)*\.?$", "name_missing?", "triton.language"),
    (
        rf"access the attribute '(?P<name>\w+)' on (?:the )?(?:module )?'?{_T}'?",
        "name_missing",
        "triton.language",
    ),
    (rf"(?:call|use) {_T}\.(?:float|int|uint|bfloat)\d+ as a function", "not_callable", "dtype"),
    (r"use the '?(?:continue)'? statement", "unsupported_node", "continue"),
    (r"use (?:a |the )?'?break'?", "unsupported_node", "break"),
    (r"(?:use|define) (?:a |an )?(?:nested|inner)", "unsupported_node", "nested_function"),
    (r"define a nested \(inner\) function", "unsupported_node", "nested_function"),
    (r"use (?:a |Python )?(?:\w+ )?list comprehensions?", "unsupported_node", "listcomp"),
    (r"use (?:a |Python )?lambda", "unsupported_node", "lambda"),
    (r"(?:use )?chain(?:ed)? (?:multiple )?boolean operators", "unsupported_node", "chained_boolean"),
    (r"call the \.sum\(\) method", "belief", "sum_method"),
    (r"pass a dtype keyword argument to tl\.sum", "belief", "sum_dtype"),
    (r"call tl\.load\(\.\.\., mask=mask\) without", "belief", "load_without_other"),
    (r"perform tl\.load\(\.\.\.\) inside a Python while loop", "belief", "while_runtime"),
    (r"call tl\.sum with (?:a|the keyword argument) '?(?P<name>mask|axes)'?", "call_keyword", "tl.sum"),
    (r"add a pointer|multiply a pointer", "pointer_arithmetic", "pointer"),
    (r"call a function decorated with @triton\.jit outside", "called_without_grid", "launch"),
    (r"call torch\.\w+ with an out=\.\.\. argument", "out_and_gradients", "torch"),
    (r"call the (?:\.(?P<name>\w+)|(?P<name2>\w+)) method .*on a Triton '?tensor", "attribute_missing", "block"),
    (r"use (?:simultaneous multiple|chained(?:/simultaneous multiple)?) comparisons?", "unsupported_node", "chained_comparison"),
    (r"index (?:into )?a (?:Triton )?(?:tensor|block)|subscript a Triton tensor|slice a (?:Triton )?(?:tensor|block)", "index_block", "block"),
    (r"access the global variable", "plain_global", "global"),
    (r"reference the name \w+ when it is not defined", "undefined_name", "host"),
    (r"call (?:the|a) (?:compiled )?Triton kernel without (?:providing|passing)", "launch_missing", "launch"),
    (r"pass multiple values for the", "launch_twice", "launch"),
    (r"(?:specify|pass) the (?:unrecognised )?keyword argument '?\w+'? when launching", "launch_keyword", "launch"),
    (r"pass an integer as the grid", "launch_grid", "grid"),
    (r"call float\(\) on a tensor", "python_conversion", "float"),
    (r"call int\(\) on a tensor", "python_conversion", "int"),
    (r"(?:call|use) .*tl\.arange.*power of (?:two|2)", "arange_power", "tl.arange"),
    (r"use .*`?_builder`? argument", "outside_jit", "where a kernel does not pass its builder on"),
    (r"call a function that requires a `?_builder", "outside_jit", "where a kernel does not pass its builder on"),
    (r"(?:redefine|re-define|pass|define) .*auto-?tuned", "autotune_conflict", "triton.autotune"),
    (r".*num_warps.*power of (?:two|2)", "num_warps_power", "num_warps"),
    (r".*shared memory", "out_of_resource", "shared memory"),
    (r".*incompatible dimensions", "incompatible_shapes", "block"),
    (r"change the type of (?:the )?loop-carried", "loop_type", "loop"),
    (r"re-?assign (?:the )?(?:a )?loop-carried", "loop_type", "loop"),
)  # fmt: skip
BELIEFS = {starter.key: starter.text for starter in STARTERS if starter.text}
_SAID = [
    (re.compile(rf"You cannot {pattern}", re.IGNORECASE), kind, construct)
    for pattern, kind, construct in _SAYINGS
]
_EXISTING = re.compile(
    r"load|store|arange|zeros|full|dot|sum|max|min|where|exp|log|sqrt|float\d+|int\d+|constexpr|math|randint|rand|cast"
)


def _known(text: str) -> tuple[str, tuple[str, ...], str, str] | None:
    """Return the kind that a stranger's text is about: key, names, subject and our own words for it."""
    for pattern, kind, construct in _SAID:
        found = pattern.match(text)
        if found is None:
            continue
        name = found.groupdict().get("name") or found.groupdict().get("name2")
        if kind.endswith("?"):
            if name is None or _EXISTING.fullmatch(name):
                continue
            kind = kind.removesuffix("?")  # noqa: PLW2901 - a doubtful saying that turned out well
        if kind == "belief":
            return f"{kind}:{construct}", (), "language", BELIEFS[f"{kind}:{construct}"]
        known = KINDS_BY_ID[kind]
        names = (name,) if name else ()
        words = known.words.replace("{construct}", constructs_in_words(kind, construct)).replace(
            "{names}", ", ".join(names)
        )
        if kind == "undefined_name":
            words = "You cannot use a name in host code that is not defined there."
        return f"{kind}:{construct}", names, known.subject, words
    return None


def _skeleton(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()[:120]
