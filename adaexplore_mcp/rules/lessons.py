"""What may be the text of a rule: one sentence that begins "You cannot", and nothing that tells its reader what to do.

A memory that several agents read is a way to put words into each of them, so a text that is more than a sentence about what
cannot be done is refused, with the reason.
"""

import hashlib
import re
from collections.abc import Iterator

from adaexplore_mcp.rules.kinds import CHECKS
from adaexplore_mcp.rules.ownwords import NOTHING, OwnWords, addressed

__all__ = ["ADDRESSES", "MAX_CHARACTERS", "MIN_CHARACTERS", "cleaned", "objections", "words_digest"]

MAX_CHARACTERS = 200
MIN_CHARACTERS = 20
BEGINNING = "You cannot "
ADDRESSES = "it speaks to its reader or of something else than kernels"

_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|vs|no|cf)\.", re.IGNORECASE)
_END = re.compile(r"(?<!\.)[.!?](?=\s+\S)")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_FOREIGN = re.compile("[^\x20-\x7e\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u00b2\u00b3\u00d7\u2264\u2265]")
_CODE = re.compile(
    r"```|`[^`]*[\n;=][^`]*`|\b(?:import|def|class|return|lambda)\s+\w+\s*[(:=]|;\s*\w|[{}]|\w+\s*=\s*\w+\(|</?\w+>"
)
_LINE = re.compile(r"\bline\s*#?\d+|\bat \d+:\d+|\bcolumn\s+\d+|\w+\.py\b", re.IGNORECASE)

# --- fixes
_VERBS = (
    r"(?:use|try|write|rewrite|replace|call|pass|add|make|set|do|load|move|cast|convert|wrap|compute|apply|express|switch|keep|put|"
    r"choose|pick|prefer|consider|take|implement|emulate|approximate|reshape|mask|define|declare|multiply|divide|broadcast|"
    r"transpose|allocate|annotate|give|let|unroll|hoist|import|drop|avoid|ensure|remove|change|split|store|go|pad|clamp|build|create|return|read|copy|subtract|skip|run|launch)"
)
_BREAK = r"(?:[;:\u2013\u2014]|\s--?\s|,?\s(?:but|so|whereas|while|though|although|then)\b|,?\sand then\b)"
_FIX = re.compile(
    rf"(?:{_BREAK}|\()\s*(?:(?:just|simply|only|better|rather|please|to|then|so|and|or|one can|it is)\s+)*{_VERBS}\b(?!\s+(?:is|are|cannot)\b)"
    rf"|,\s*(?:just |simply |then )?{_VERBS}\b(?!\s*,|\s+or\b|\s+and\b)"
    rf"|{_BREAK}[^;]*\b(?:works?|worked|suffices?|helps?|exists|fixes|solves|does|do|can|will|is (?:fine|better|enough|faster|supported|"
    r"available|possible|allowed|right|there)|are (?:fine|better|supported|available|possible|allowed))\b(?!\s*(?:not|n't|no)\b)"
    r"|\bbut\s+(?:with|by|via|through|using)\b"
    r"|\b(?:except|other than|unless|only)\s+(?:with|by|via|through|using|you|when using)\b"
    r"|(?<!not )\b(?:can|could|may|should) be (?:used|written|computed|replaced|called|expressed|emulated|built|done|obtained|"
    r"approximated|implemented)\b"
    r"|\bso\s+(?:use|cast|write|convert|call)\b|\btherefore\b|\binstead\b|\brather\b|\bto fix\b|\bworkaround\b|\bin order to\b"
    r"|\buse \S+ for this\b|\brecommend\w*|\bprefer\w*|\balternative\w*|\bthe (?:right|correct|proper) way\b|->|=>",
    re.IGNORECASE,
)
_API = re.compile(r"\b(?:tl|torch|triton|math|np|numpy|libdevice|F|nn)\.[\w.]*\w")
_PLAIN_API = re.compile(r"torch\.nn\.parameter\.\w+|\w+\.(?:constexpr|language|\w*(?:float|int|uint)\d+\w*)")
"""Names that explain what cannot be done and are no way to do it."""
_LIST = rf"{_API.pattern}(?:\(\))?(?=\s*,|\s+(?:or|and)\b)"
_REASON = re.compile(
    rf"\s\((?P<aside>[^)]*)\)|(?:{_BREAK}|\b(?:because|since|without replacing|and needs?)\b|,(?=\s*(?:only|which)\b|\s*{_API.pattern})(?!\s*{_LIST}))(?P<rest>.*)$"
)
_TEMPLATES = frozenset(words for _, words in CHECKS.values())
"""Sentences of ours that an export holds; one says what a candidate did instead."""

# --- one kernel
_SHAPE = re.compile(
    r"[\[(]\s*\d{2,}\s*,?\s*[\])]|[\[(]\s*\d+\s*(?:,\s*\d+\s*)+,?\s*[\])]|\b\d+\s*[x\u00d7]\s*\d+\b|0x[0-9a-fA-F]+"
)
_NUMBER = re.compile(
    r"(?P<option>\bnum_(?:warps|stages|ctas)\s*(?:=|of)?\s*)?(?<![\w.])(?P<number>\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:e-?\d+)?)(?![\w.]*\w)"
    r"(?P<unit>[\s-]*(?:bits?|bytes?|dimensions?|[KMG]i?B|warps?|threads?|registers?|stages?)\b)?"
    r"(?P<counted>[\s-]*(?:\w+ )?(?:elements?|rows?|columns?|values?|items|entries|lanes?|programs?|blocks?|tiles?|channels?|features?|"
    r"heads?|tokens?|batches|samples?|iterations?|steps?|wide|long|tall)\b)?"
)
_LIMITS = frozenset({1048576, 65535, 65504, 2147483647})
"""Numbers of Triton, of CUDA's grids, of float16 and of int32, and of no kernel."""
_DOT_LIMITS = frozenset({16, 32})
_SMALL, _LARGE = 4, 1000
"""Ranks and axes; extents."""
_THINGS = (
    r"(?:kernel|program|function|task|candidate|code|source|attempt|example|problem|reference|model|module|line|snippet|case|shape|size|"
    r"block|tile|loop|variable|pointer|tensor|launch|grid|input|output)"
)
_ONE_KERNEL = re.compile(
    rf"\bModelNew\b|\bthis (?:[\w-]+ ){{0,2}}?{_THINGS}\b|\b(?:the|that|a) (?:[\w-]+ )?{_THINGS}s? (?:above|below|shown|at hand|in question|here)\b|"
    rf"\b(?:the|that) (?:given|failing|failed|submitted|sent|current|above|original) {_THINGS}\b|"
    r"\b(?:the|that) (?:first|last|previous|present) (?:kernel|candidate|attempt)\b|"
    r"\bkernel shown\b|\bthe statement\b|\bthe expression\b|'[A-Z][A-Z0-9]+'|\b[A-Z]\.\w+|"
    r"\b[A-Z][a-z]+[A-Z]\w+\.\w+|\bwhen [A-Z]\w* is an?\b|\w+\((?:[a-z]{2,}|\w+,)[^)]*\) in(?:side)? "
)
_HARNESS = re.compile(
    r"\b(?:HTTP|port|connection|server|socket|subprocess|evaluation|evaluator|harness|temp_module|\d+\.\d+\.\d+\.\d+|"
    r"torch\.cuda\.reset\b)",
    re.IGNORECASE,
)
KNOWN_WORDS = re.compile(
    r"(?<![\w.])(?:(?:tl|triton|torch|math|np|numpy|nn|F|libdevice)\.[\w.]+|num_warps|num_stages|num_ctas|static_(?:range|assert|print)|"
    r"make_block_ptr|atomic_\w+|zeros_like|expand_dims|broadcast_to|allow_tf32|input_precision|program_id|num_programs|other|mask|"
    r"_builder|_semantic|cumsum|__\w+__|BLOCK_SIZE|element_ty|advance|out_dtype|data_ptr|is_cuda|float16|float32|bfloat16|"
    r"device_assert|reset_to_zero|restore_value|associative_scan|load_state_dict|requires_grad|list_comprehension|device_print)(?!\w)"
)
_OWN_NAME = re.compile(r"\b(?:[a-z]+_[a-z0-9_]+|_[a-z]\w*|[A-Z][A-Z0-9]*_[A-Z0-9_]+|[a-z]+[A-Z]\w*)\b")
MOST_WORDS_OF_A_NAME = 4
"""No API has names of more."""

_ABOUT_KERNELS = re.compile(
    r"kernel|triton|torch|cuda|gpu|numpy|python|jit|autotun|constexpr|tensor|block|pointer|grid|launch|loop|dtype|mask|load|stor|warp|"
    r"register|memory|tile|\brows?\b|column|program|thread|operand|operator|stride|shape|dimension|\bax[ei]s\b|index|indic|slic|scalar|"
    r"vector|matri|reduc|broadcast|accumulat|precision|float|\bint|number|\bfp\d|nan|infinit|expon|divi|multipl|arithmetic|overflow|"
    r"round|cast|output|input|reference|atomic|barrier|race|function|argument|parameter|keyword|attribute|variable|value|statement|"
    r"lambda|expression|decorat|compar|comprehension|assign|module|buffer|cache|cach|bandwidth|latenc|occupanc|spill|lane|element|tl\.|\bbits?\b|"
    r"byte|softmax|comput|compil|call|name|process|signal|address|access|host code|exception",
    re.IGNORECASE,
)


def cleaned(text: str) -> str:
    """Return a text on one line, without control characters and marks that turn or hide writing."""
    return " ".join(_CONTROL.sub(" ", text).split())


def words_digest(text: str) -> str:
    """Return what is equal for texts of equal words."""
    words = re.sub(r"\W+", " ", text.lower()).strip()
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def objections(text: str, *, own: OwnWords = NOTHING, imported: bool = False) -> list[str]:
    """Return why a text cannot be a rule, most important first; none if it can.

    Args:
        text: As `cleaned` returns it.
        own: Names and numbers of the kernels it is about, that must not stand in it.
        imported: It comes from a file: it must not be about whoever made it, and plain camel case may be a library's.
    """
    found = list(_of_form(text))
    if said := addressed(text.removeprefix(BEGINNING)):
        found.append(f"{ADDRESSES} ({said!r})")
    elif not _ABOUT_KERNELS.search(text):
        found.append(f"{ADDRESSES}: it names nothing of kernels")
    if _CODE.search(text):
        found.append("it holds code")
    if text not in _TEMPLATES and (said := _fix(text)):
        found.append(f"it gives a fix ({said!r}); a rule says only what cannot be done")
    if matched := _LINE.search(text):
        found.append(f"it names a line or a file of one kernel ({matched[0]!r})")
    if matched := _SHAPE.search(text):
        found.append(f"it names numbers of one kernel ({matched[0]!r})")
    elif said := _number(text, own):
        found.append(f"it names numbers of one kernel ({said!r})")
    if said := next(_own_names(text, own, imported=imported), ""):
        found.append(f"it names something of one kernel ({said!r})")
    if matched := _ONE_KERNEL.search(text):
        found.append(f"it is about one kernel or one task ({matched[0]!r})")
    if imported and _HARNESS.search(text):
        found.append("it is about whoever evaluated, not about kernels")
    return found


def _of_form(text: str) -> Iterator[str]:
    if not text.startswith(BEGINNING):
        yield 'it must begin with "You cannot "'
    if len(text) > MAX_CHARACTERS:
        yield f"it has {len(text)} characters, at most {MAX_CHARACTERS} are allowed"
    if len(text) < MIN_CHARACTERS:
        yield "it says too little"
    if _END.search(_ABBREVIATIONS.sub("", text)):
        yield "it has more than one sentence"
    if matched := _FOREIGN.search(text):
        yield f"it holds characters that are no plain letters ({matched[0]!r})"


def _fix(text: str) -> str:
    """Return the words that say what works: an advice, or a function behind the claim that the claim is not about."""
    if matched := _FIX.search(text):
        return matched[0].strip(" ,;:(-\u2013\u2014")
    for reason in _REASON.finditer(text):
        claimed = set(_functions(text[: reason.start()]))
        other = (name for name in _functions(reason["aside"] or reason["rest"] or "") if name not in claimed)
        if name := next(other, ""):
            return name
    return ""


def _functions(text: str) -> list[str]:
    named = (name.replace("triton.language.", "tl.") for name in _API.findall(text))
    return [name for name in named if not _PLAIN_API.fullmatch(name)]


def _number(text: str, own: OwnWords) -> str:
    """Return a number that is one kernel's."""
    for found in _NUMBER.finditer(text):
        value = float(found["number"].replace(",", ""))
        if value <= _SMALL and value.is_integer():
            continue
        if value in _LIMITS or (value in _DOT_LIMITS and "dot" in text):
            continue
        if value >= _LARGE or found["counted"]:
            return found["number"]
        if value in own.numbers and not (found["unit"] or found["option"]):
            return found["number"]
    return ""


def _own_names(text: str, own: OwnWords, *, imported: bool) -> Iterator[str]:
    known = " ".join(KNOWN_WORDS.findall(text))
    yield from (name for name in re.findall(r"\w+", known) if name.count("_") >= MOST_WORDS_OF_A_NAME)
    rest = KNOWN_WORDS.sub(" ", _ABBREVIATIONS.sub("", text))
    yield from own.named_in(rest)
    yield from (word for word in _OWN_NAME.findall(rest) if not imported or "_" in word)
