"""Words of one author: what a kernel names and counts itself, and which words are everybody's.

A text that other agents read may hold the language's words and not an author's: these say nothing about another kernel, and
a name can be a sentence.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from adaexplore_mcp.rules.probes import MISSING
from adaexplore_mcp.rules.vocabulary import LANGUAGE_FUNCTIONS, VOCABULARY

__all__ = ["NOTHING", "OwnWords", "addressed", "own_words", "says_something"]

MAX_SOURCE = 128 << 10

ORDINARY = (
    VOCABULARY
    | LANGUAGE_FUNCTIONS
    | set(MISSING)
    | set(dir(builtins))
    | set(keyword.kwlist)
    | frozenset(
        """
        acc accumulate accumulator accumulators activation activations address addresses after align alignment along amount anchor
        arithmetic arrays atomic attention attribute attributes autotune average axes backward band barrier base batch batches
        before begin best bias big blocks boundary branch branches bucket buffer buffers byte bytes cache call call calls cell
        channel channels chunk chunks class code column columns comparison component condition constants contiguous copy cosine
        count counter counts cost current data decay decorator default delta denominator depth destination device diagonal
        difference dilation dims distance divide division divisor double dropout each edge embedding embeddings empty end entries
        entry epsilon error even exact exponent extent extents factor false feature features field fields filter fixed flag flags
        flat forward fraction full functions fused gamma gate global gradient gradients graph grid grids group groups guard half
        half head heads height hidden high host identity image in indices infinity inner inside inplace integers inverse items job
        kernel kernels key keys keyword label labels lane lanes large larger layer layers layout left length lengths level limit
        limits line linear lines load loads local logits long loops loss low lower main matrices matrix max mean memory mode model
        module momentum multiple names narrow neighbour next nodes none norm normal normalisation normalization normalized
        numbers numerator numerical occupancy odd offset offsets old op operations optional outer outputs overflow own padding
        pair pairs part partial parts patch pass path phase pixel place plane point pointers points position positions precision
        previous probabilities probability problem product products program programs projection pure quantised quantized query
        radius random ranges rate ratio raw reads real reciprocal reductions reference register registers remainder repeat reset
        residual rest results right root round rounding row rows run running safe sample samples scale scaled scales scan score
        scores segment self sequence shared shift sign signal simple single slice slices slope slot slow small softmax source space
        square squared squares stage stages start starts state statement states static steps stop stores strides sums symbol
        table tail tails target task temporary term terms tensors test thread threads threshold tile tiles times token tokens top
        total transposed true two types unit units update upper use valid variables variance vector vectors version view vocab
        volume warp warps weight weights width wide window words work write writes zero dtype dtypes shape pid
        a about above across again against almost also although among another anything as at away back because become becomes being
        below beside besides beyond by cannot chosen come common correct counted different directly do does done down during early
        either else enough every everything exactly few final finally found further general given goes going group grouped hardware
        have having here highest how however idea instead into it its itself just keep keeps kept kind language last late later
        leave leaves left lengthy less let lets like little longer longest make makes many may member might more most move much
        must need needed needs neither never new next nor nothing now off often old once onto ordinary origin others otherwise out
        outside over page paged peak per plain possible present put quite rather rest same see seen several should side since
        so some something still such take taken takes their them then there these they thing things this those though three
        through together too toward towards twice under unless until upon us used using very via vocabulary was way well were what
        whatever where whether which who whole whose why will within without wrong yet
        """.split()  # noqa: SIM905 - three hundred lines otherwise
    )
)
"""Words that stand in texts about any kernel, though one may use them as a name."""
LONG_API = frozenset({
    "scaled_dot_product_attention", "max_num_imprecise_acc_default", "allowed_dot_input_precisions", "is_floating_point",
    "default_dot_input_precision", "deprecated_fp8_dot_operand_dtypes", "_experimental_descriptor_load", "triton_helpers",
    "_experimental_make_tensor_descriptor", "binary_cross_entropy_with_logits", "fractional_max_pool2d_with_indices",
})  # fmt: skip
"""Names of torch and Triton that are longer than an author's may be."""
MATRIX_SIZES = frozenset("MNK")
"""What everybody calls the sizes of a product."""

_WORD = re.compile(r"(?<![\w.'\u2019])[A-Za-z_]\w*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

KEPT = re.compile(
    r"\b(?:broadcast(?:ing)?|promotion|casting|conversion|type|shape|masking|layout|alignment) rules?\b|\buser[- ]defined\b|"
    r"\b(?:ptx|sass|machine|assembly|vector|vectori[sz]ed|mma|wgmma|tensor[- ]core|load|store|warp|memory|simd|hardware|atomic|"
    r"gpu|async) instructions?\b|\bdelet\w+ (?:an? |the )?(?:local )?(?:variable|name)s?\b|\beviction policy\b|"
    r"\byou cannot\b"
)
"""Phrases about kernels whose words elsewhere speak of something else."""
ADDRESSED = re.compile(
    r"\b(?:"
    # whoever reads, and whoever else is meant
    r"you|yours?|yourself|me|my|we|our|ours|readers?|agents?|assistants?|chatbots?|llms?|gpt\w*|claude|language models?|ai|"
    r"artificial intelligence|humans?|persons?|people|users?|developers?|authors?|admins?|administrators?|reviewers?|maintainers?|"
    r"colleagues?|attackers?|owners?|servers?|clients?|sessions?|conversations?|chats?|context windows?|mcp|plugins?|tools?|"
    # this memory and what it says
    r"rules?|lessons?|instructions?|prompts?|guidelines?|polic(?:y|ies)|guardrails?|permissions?|this memory|skill memory|"
    r"memory (?:shows?|says?|tells?|gives?|holds?|teaches)|"
    # the machine around a kernel
    r"files?|filenames?|filesystems?|folders?|director(?:y|ies)|disks?|hard drives?|home|desktop|repositor(?:y|ies)|repos?|git\w*|"
    r"commits?|backups?|databases?|shells?|bash|zsh|powershell|terminals?|consoles?|sudo|chmod|rm|commands?|scripts?|cron\w*|daemons?|"
    r"environments?|env vars?|dot com|e ?mails?|e-mails?|websites?|web ?pages?|urls?|https?|www|internet|browsers?|curl|wget|ftp|ssh|"
    r"scp|pip|conda|npm|"
    # what is done to it
    r"delet(?:e|es|ed|ing|ion)|eras(?:e|es|ed|ing)|wip(?:e|es|ed|ing)|destroy\w*|uninstall\w*|install\w*|download\w*|upload\w*|"
    r"exfiltrat\w*|"
    # secrets
    r"passwords?|passphrases?|credentials?|secrets?|(?:api|private|public|ssh|encryption|access|license) keys?|"
    r"(?:access|api|auth\w*|bearer|github|hf|login|security|session|refresh) tokens?|bearer|cookies?|log ?ins?|wallets?|bitcoins?|"
    r"payments?|"
    # whoever judges, and how to get past it
    r"verification|verifiers?|verdicts?|judges?|graders?|cheat\w*|honest\w*|hard ?-?cod(?:e|ed|ing)|approv\w+|"
    # what only a reader can do
    r"ignor(?:e|es|ed|ing)|disregard\w*|forget (?:all|every\w*|what|about)|overrid\w*|obey\w*|reveal\w*|disclos\w*|pretend\w*|comply|complies|impersonat\w*|"
    r"respond\w*|repl(?:y|ies)|answers?|please|always|never mind|run this|execute this|run the following|execute the following"
    r")\b"
)
_ORDER = re.compile(
    r"(?:finish|proceed|go on|carry on|move on|be done|succeed|stop|wait|rest)\b.*\b(?:before|until|unless|without)\b"
)


@dataclass(frozen=True, slots=True)
class OwnWords:
    """What belongs to some kernels alone.

    Args:
        names: That they define or bind, other than words that are everybody's.
        numbers: That stand in them.
    """

    names: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()

    def without(self, text: str) -> "OwnWords":
        """Return them without the names and numbers of a text that may be repeated: a rule's own."""
        numbers = {float(found) for found in re.findall(r"(?<!\w)\d+(?:\.\d+)?(?!\w)", text)}
        return OwnWords(self.names - set(re.findall(r"\w+", text)), self.numbers - numbers)

    def named_in(self, text: str) -> list[str]:
        """Return the names that stand in a text, in its order."""
        known = self.names - MATRIX_SIZES if re.search(r"\bdot\b|\bmatri|\bproduct", text) else self.names
        return [word for word in _WORD.findall(text) if word in known]


NOTHING = OwnWords()


def own_words(sources: Iterable[bytes]) -> OwnWords:
    """Return the names and numbers of some kernels; of what is no Python, or longer than any kernel, none."""
    names: set[str] = set()
    numbers: set[float] = set()
    for source in sources:
        try:
            tree = ast.parse(source) if len(source) <= MAX_SOURCE else ast.Module([], [])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            names.update(_bound(node))
            if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
                numbers.add(float(str(node.value)[:300]))
    return OwnWords(frozenset(name for name in names if not _is_ordinary(name)), frozenset(numbers))


def addressed(text: str) -> str:
    """Return what in a text speaks to or of its reader, this memory or the machine; empty where nothing does.

    Names are read as the words they are made of.
    """
    words = KEPT.sub(" ", _spelled(text))
    found = ADDRESSED.search(words) or _ORDER.match(words) or re.search(r"\bI\b", text)
    return found[0] if found else ""


def says_something(name: str) -> bool:
    """Tell whether a name says more than names do: long, of many words, of another script, or a word to its reader."""
    words = [word for word in _spelled(name).split() if word]
    if name in LONG_API:
        return False
    if not name.isascii() or addressed(name):
        return True
    unusual = [word for word in words if len(word) > 3 and not _is_ordinary(word) and not word.isdigit()]
    return len(name) > 24 or len(words) > 4 or len(unusual) > 2


def _is_ordinary(word: str) -> bool:
    return word in ORDINARY or (len(word) > 4 and word.removesuffix("s") in ORDINARY)


def _spelled(text: str) -> str:
    return _CAMEL.sub(" ", text).replace("_", " ").lower()


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
