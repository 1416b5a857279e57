"""What may be the text of a rule: one sentence that begins "You cannot", and nothing that tells its reader what to do.

A memory that several agents read is a way to put words into each of them, so a text that is more than a sentence about what
cannot be done is refused, with the reason.
"""

import re

__all__ = ["MAX_CHARACTERS", "MIN_CHARACTERS", "cleaned", "objections"]

MAX_CHARACTERS = 200
MIN_CHARACTERS = 20
BEGINNING = "You cannot "

_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|vs|no|cf)\.", re.IGNORECASE)
_END = re.compile(r"(?<!\.)[.!?](?=\s+\S)")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_CODE = re.compile(
    r"```|`[^`]*[\n;=][^`]*`|\b(?:import|def|class|return|lambda)\s+\w+\s*[(:=]|;\s*\w|[{}]|\w+\s*=\s*\w+\(|</?\w+>"
)
_LINE = re.compile(r"\bline\s*#?\d+|\bat \d+:\d+|\bcolumn\s+\d+|\w+\.py\b", re.IGNORECASE)
_SECRETIVE = re.compile(
    r"\b(?:ignore|disregard|forget|override|obey|reveal|pretend|system prompt|previous instructions?|instructions?|assistant|"
    r"as an ai|the user|the reader|password|secret|api key|token|sudo|curl|wget|rm -|http|https|www|execute|run this|call the"
    r" tool|tool call|you must|you should|you are|you need|please|always|never mind)\b",
    re.IGNORECASE,
)
_FIX = re.compile(
    r"[,;:\u2013\u2014-]\s*(?:use|instead|try|write|replace|call|pass|add|make|set|do|load|move|cast|convert|wrap|so|therefore)\b"
    r"|\binstead\b|\brather\b|\bto fix\b|\bworkaround\b|\bin order to\b|\buse \S+ for this\b",
    re.IGNORECASE,
)
_SHAPE = re.compile(r"[\[(]\s*\d+\s*(?:,\s*\d+\s*)+,?\s*[\])]|\b\d+\s*[x×]\s*\d+\b|0x[0-9a-fA-F]+|\b\d{4,}\b")  # noqa: RUF001
_HARNESS = re.compile(
    r"\b(?:HTTP|port|connection|server|socket|subprocess|evaluation|evaluator|harness|temp_module|\d+\.\d+\.\d+\.\d+|"
    r"torch\.cuda\.reset\b)",
    re.IGNORECASE,
)
_ONE_KERNEL = re.compile(
    r"\bModelNew\b|\bthis (?:Triton )?kernel\b|\bkernel shown\b|\bthe statement\b|\bthe expression\b|'[A-Z][A-Z0-9]+'|\b[A-Z]\.\w+|"
    r"\b[A-Z][a-z]+[A-Z]\w+\.\w+|\bwhen [A-Z]\w* is an?\b|\w+\((?:[a-z]{2,}|\w+,)[^)]*\) in(?:side)? "
)
KNOWN_WORDS = re.compile(
    r"(?:tl|triton|torch|math|np|numpy|nn|F)\.[\w.]+|num_warps|num_stages|num_ctas|static_\w+|make_block_ptr|atomic_\w+|"
    r"zeros_like|expand_dims|broadcast_to|allow_tf32|input_precision|program_id|num_programs|other|mask|_builder|_semantic|"
    r"cumsum|__\w+__|BLOCK_SIZE\b|element_ty|advance|out_dtype|data_ptr|is_cuda|float16|float32|bfloat16|device_assert|"
    r"reset_to_zero|restore_value|associative_scan|load_state_dict|requires_grad|list_comprehension|device_print"
)
_OWN_NAME = re.compile(r"\b(?:[a-z]+_[a-z0-9_]+|_[a-z]\w*|[A-Z][A-Z0-9]*_[A-Z0-9_]+|[a-z]+[A-Z]\w*)\b")


def cleaned(text: str) -> str:
    """Return a text on one line, without control characters and marks that turn or hide writing."""
    return " ".join(_CONTROL.sub(" ", text).split())


def objections(text: str, *, names: frozenset[str] = frozenset(), imported: bool = False) -> list[str]:
    """Return why a text cannot be a rule, most important first; none if it can.

    Args:
        text: As `cleaned` returns it.
        names: Names of the kernel that must not stand in it.
        imported: It comes from a file: it must be about kernels, and not about whoever made it.
    """
    found: list[str] = []
    if not text.startswith(BEGINNING):
        found.append('it must begin with "You cannot "')
    if len(text) > MAX_CHARACTERS:
        found.append(f"it has {len(text)} characters, at most {MAX_CHARACTERS} are allowed")
    if len(text) < MIN_CHARACTERS:
        found.append("it says too little")
    if _END.search(_ABBREVIATIONS.sub("", text)):
        found.append("it has more than one sentence")
    if said := _SECRETIVE.search(text):
        found.append(f"it speaks to its reader or of something else than kernels ({said[0]!r})")
    if _CODE.search(text):
        found.append("it holds code")
    if said := _LINE.search(text):
        found.append(f"it names a line or a file of one kernel ({said[0]!r})")
    if said := _SHAPE.search(text):
        found.append(f"it names numbers of one kernel ({said[0]!r})")
    own = [word for word in _own_names(text) if word in names or not imported or "_" in word]
    if own:
        found.append(f"it names something of one kernel ({own[0]!r})")
    if said := _FIX.search(text):
        found.append(f"it gives a fix ({said[0].strip(' ,;:-')!r}); a rule says only what cannot be done")
    if imported and (said := _ONE_KERNEL.search(text)):
        found.append(f"it is about one kernel or one task ({said[0]!r})")
    if imported and _HARNESS.search(text):
        found.append("it is about whoever evaluated, not about kernels")
    return found


def _own_names(text: str) -> list[str]:
    rest = KNOWN_WORDS.sub(" ", text)
    return _OWN_NAME.findall(rest)
