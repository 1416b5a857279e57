"""Read sets of rules that others made: `rule||count` lines, or our own JSON. What is noise is dropped, with the reason.

The texts are a stranger's: each goes through the checks of a lesson, and one whose kind is known takes the words of that kind.
What is no rule at all costs its own line, or its own entry of the JSON, and nothing of the rest.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from adaexplore_mcp.rules.bounds import ANYWHERE, Place, narrowest
from adaexplore_mcp.rules.kinds import CHECKS, KINDS_BY_ID, constructs_in_words
from adaexplore_mcp.rules.lessons import ADDRESSES, cleaned, objections
from adaexplore_mcp.rules.ownwords import says_something
from adaexplore_mcp.rules.probes import STARTERS

__all__ = ["Line", "read_published"]

MAX_LINES, MAX_NAMES = 20_000, 60
MAX_LENGTH = 2_000
"""Characters of a text that are looked at; a rule has at most a tenth of them."""
MAX_COUNT = 1e12
_PLACE = re.compile(r"[\w .-]{1,60}")
_LINE_END = re.compile(r"\r\n|\r|\n")
_COUNTED = re.compile(r'^[^"\r\n]*\|\|[ \t]*[\d.]+[ \t\r]*$', re.MULTILINE)
_UNDECODED = re.compile("[\ud800-\udfff]")
"""Bytes that are no UTF-8, as `surrogateescape` keeps them, and halves of characters, which JSON can write."""
_BETWEEN = re.compile(r"[\s,]*")
_NEXT_LINE = re.compile(r"\n")
_NEXT_OBJECT = re.compile(r"[\[,}]\s*(?=\{)|\n(?=[ \t]*\{)")
_NEXT_ENTRY = re.compile(rf"{_NEXT_LINE.pattern}|{_NEXT_OBJECT.pattern}")
_DECODER = json.JSONDecoder(parse_int=float)


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one line, or one entry, of a file.

    Args:
        number: Of the line, from 1; of an entry, of the line on which it begins.
        text: The rule, in the words it is kept with.
        key: Fingerprint of the failure it is about, or of its text.
        names: Names that it lists.
        subject: What it is about.
        count: As the file gives it; nothing is known of what it counts.
        place: What it is bound to.
        reasons: Why it was not taken; none if it was.
        malformed: It is no rule at all, not merely a bad one.
        entry: Number of the entry of a JSON file, from 1; 0 for a line.
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
    entry: int = 0


def read_published(content: str | bytes) -> list[Line]:
    """Return every line of a `rule||count` file, or every entry of a JSON export, taken or not."""
    text = content if isinstance(content, str) else content.decode("utf-8", "surrogateescape")
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith(("{", "[")) and not _COUNTED.search(text):
        return _of_json(text)
    return _of_lines(text)


def _of_lines(content: str) -> list[Line]:
    found: list[Line] = []
    lines = _LINE_END.split(content)
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(found) == MAX_LINES:
            found.append(_no_rule(number, _too_many("lines")))
            break
        found.append(_of_line(number, line))
    return found


def _of_line(number: int, line: str) -> Line:
    if fault := _fault(line):
        return _no_rule(number, fault)
    text, separator, count = line.rpartition("||")
    if not separator:
        return _no_rule(number, "not of the form rule||count")
    if not text.strip():
        return _no_rule(number, "there is no rule before the count")
    value = _number(count)
    if value is None:
        return _no_rule(number, f"the count {count.strip()[:20]!r} is none")
    return _rule(number, text, value)


def _number(given: object) -> float | None:
    """Return a count; None if it is none."""
    try:
        value = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else -1.0
    except ValueError:
        return None
    return value if 0 <= value < MAX_COUNT else None


def _fault(text: str) -> str:
    """Return why a text cannot be that of a rule, whatever it says; empty if it can."""
    if fault := _undecoded(text):
        return fault
    if "\0" in text:
        return f"a null byte at character {text.index(chr(0)) + 1}"
    if len(text) > MAX_LENGTH:
        return f"it has {len(text)} characters; more than {MAX_LENGTH} are not read"
    return "" if text.strip() else "it is empty"


def _undecoded(text: str) -> str:
    """Name the first byte of a text that is not UTF-8, or the empty string."""
    found = _UNDECODED.search(text)
    if found is None:
        return ""
    code = ord(found[0])
    what = f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "half a character"
    return f"{what} at character {found.start() + 1} is not UTF-8"


def _no_rule(number: int, why: str, entry: int = 0) -> Line:
    return Line(number, "", reasons=(why,), malformed=True, entry=entry)


def _too_many(what: str) -> str:
    return f"{what} from here on were not read: {MAX_LINES} are the most; split the file"


def _of_json(content: str) -> list[Line]:
    """Read one entry after the other, so that a broken one costs none of the others."""
    listed = re.search(r"\[" if content.lstrip().startswith("[") else r'"rules"\s*:\s*\[', content)
    ends = [found.start() for found in _NEXT_LINE.finditer(content)]
    at = listed.end() if listed else 0
    found: list[Line] = []
    while True:
        at = _after(_BETWEEN, content, at)
        if at == len(content) or (listed and content[at] == "]"):
            break
        number, entry = bisect_left(ends, at) + 1, len(found) + 1
        if entry > MAX_LINES:
            found.append(_no_rule(number, _too_many("entries"), entry))
            break
        try:
            value, end = _DECODER.raw_decode(content, at)
        except RecursionError:
            found.append(_no_rule(number, "not valid JSON: nested too deeply", entry))
            at = _after(_NEXT_LINE, content, at)
            continue
        except ValueError as error:
            found.append(_no_rule(number, f"not valid JSON: {error}", entry))
            following = _NEXT_OBJECT if content[at] == "{" else _NEXT_ENTRY
            at = _after(following, content, max(at, getattr(error, "pos", at)))
            continue
        fault = _undecoded(content[at:end])
        line = _no_rule(number, fault) if fault else _of_entry(number, value)
        found.append(replace(line, entry=entry))
        at = end
    if listed and not any(line.malformed for line in found):
        found += _around(content)
    return found


def _around(content: str) -> list[Line]:
    """Return what is malformed between and around entries that are not."""
    try:
        json.loads(content, parse_int=float)
    except (ValueError, RecursionError) as error:
        return [_no_rule(getattr(error, "lineno", 1), f"not valid JSON: {error}")]
    return []


def _after(pattern: re.Pattern[str], content: str, at: int) -> int:
    """Return where the first match from a place on ends, or the end."""
    found = pattern.search(content, at)
    return found.end() if found else len(content)


def _of_entry(number: int, value: object) -> Line:
    entry: Mapping[str, Any] = value if isinstance(value, dict) else {"rule": value}
    text = entry.get("rule")
    if not isinstance(text, str):
        return _no_rule(number, "no text under 'rule'")
    if fault := _fault(text):
        return _no_rule(number, fault)
    support = _number(entry.get("support", 0))
    if support is None:
        return _no_rule(number, f"the support {str(entry['support'])[:20]!r} is no number of task families")
    line = _rule(number, text, support)
    if line.reasons:
        return line
    key, names = entry.get("kind"), entry.get("names")
    if isinstance(key, str) and re.fullmatch(r"[\w .@:-]{3,80}", key):
        kind = KINDS_BY_ID.get(key.partition(":")[0])
        if kind is not None:
            line = Line(number, line.text, key, _listed(names), kind.subject, line.count)
    return _placed(line, entry)


def _listed(names: object) -> tuple[str, ...]:
    given = names if isinstance(names, list) else []
    return tuple(each for each in given if _is_a_name(each))[:MAX_NAMES]


def _is_a_name(each: object) -> bool:
    return isinstance(each, str) and re.fullmatch(r"\w{1,40}", each) is not None and not says_something(each)


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
        ADDRESSES in each or "whoever evaluated" in each or "a line or a file" in each for each in reasons
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
