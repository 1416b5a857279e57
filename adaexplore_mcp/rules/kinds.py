"""The kinds of failure that are told apart, each with the words for its rule.

A kind is known by what Triton, torch or our checks said, never by what a candidate's author chose: names, numbers, shapes
and lines of one kernel take no part. The words are grounded in the message alone and begin "You cannot".
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CHECKS",
    "KINDS",
    "KINDS_BY_ID",
    "Kind",
    "Subject",
    "constructs_in_words",
    "kind_of",
    "of_many_causes",
]

Subject = Literal["language", "launch", "host", "resource", "numeric", "conduct", "performance"]
"""What a rule is about; `bounds` says which hold for a device or a dtype only."""

NODE_WORDS = {
    "break": "a break statement",
    "continue": "a continue statement",
    "lambda": "a lambda",
    "listcomp": "a list comprehension",
    "dictcomp": "a dict comprehension",
    "setcomp": "a set comprehension",
    "generatorexp": "a generator expression",
    "dict": "a dict",
    "set": "a set",
    "try": "a try statement",
    "raise": "a raise statement",
    "delete": "a del statement",
    "with": "a with statement",
    "global": "a global statement",
    "yield": "a yield",
    "starred": "a starred argument",
    "import": "an import statement",
    "nested_function": "a nested function definition",
    "return_in_loop": "a return statement inside a loop",
    "chained_comparison": "a chained comparison",
    "chained_boolean": "a chain of more than two operands of and or or",
    "namedexpr": "an assignment expression",
    "classdef": "a class definition",
    "asyncfor": "an async for",
    "match": "a match statement",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failure.

    Args:
        id: Its name, the first half of a fingerprint.
        subject: What it is about.
        words: The rule; `{construct}` stands for the construct in words, `{names}` for the names seen.
        pattern: Of the message; groups `construct` and `name` are taken where they are known words.
        construct: The class of construct where the pattern gives none.
        stages: At which it can happen; empty for any.
        apis: What a kernel uses that may run into it.
    """

    id: str
    subject: Subject
    words: str
    pattern: str = ""
    construct: str = ""
    stages: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern, cached by `re`."""
        return re.compile(self.pattern)


IN_KERNEL = ("compile", "launch", "interpreter")
OUTSIDE = ("load", "construct", "run")

KINDS: tuple[Kind, ...] = (
    # --- names that do not exist
    Kind(
        "name_missing",
        "language",
        "You cannot use {names} of triton.language: there is no such name in this version of Triton.",
        r"module '(?P<construct>triton)\.language(?:\.[\w.]+)?' has no attribute '(?P<name>\w+)'",
        "triton.language",
    ),
    Kind(
        "name_missing",
        "language",
        "You cannot use {names} of triton.language: there is no such name in this version of Triton.",
        r"cannot import name '(?P<name>\w+)' from '(?P<construct>triton)\.language(?:\.[\w.]+)?'",
        "triton.language",
    ),
    Kind(
        "name_missing",
        "host",
        "You cannot use {names} of {construct}: there is no such name in this version.",
        r"cannot import name '(?P<name>\w+)' from '(?P<construct>(?:torch|triton|math|numpy)(?:\.[\w.]+)?)'",
    ),
    Kind(
        "name_missing",
        "host",
        "You cannot use {names} of {construct}: there is no such name in this version.",
        r"module '(?P<construct>(?:torch|triton|math|numpy)(?:\.[\w.]+)?)' has no attribute '(?P<name>\w+)'",
    ),
    Kind(
        "item_assignment",
        "language",
        "You cannot assign to an index or a slice of a block in a Triton kernel.",
        r"'Subscript' object has no attribute 'id'|__setitem__ is not supported in triton"
        r"|'tensor' object does not support item assignment",
        "block",
        IN_KERNEL,
    ),
    Kind(
        "attribute_assignment",
        "language",
        "You cannot assign to an attribute in a Triton kernel.",
        r"Attribute assignment is not supported in triton",
        "attribute",
        IN_KERNEL,
    ),
    Kind(
        "attribute_missing",
        "language",
        "You cannot use {names} as an attribute of a block in a Triton kernel: blocks have no such attribute.",
        r"'tensor' object has no attribute '(?P<name>\w+)'",
        "block",
        IN_KERNEL,
    ),
    Kind(
        "operand_is_no_block",
        "language",
        "You cannot use {construct} as an operand beside a block in a Triton kernel.",
        r"'(?P<construct>NoneType|str|list|dict)' object has no attribute 'dtype'",
        "value",
        IN_KERNEL,
    ),
    Kind(
        "attribute_missing",
        "host",
        "You cannot use {names} as an attribute of {construct}: it has none of that name.",
        r"'(?P<construct>Config|Tensor|function|JITFunction|Autotuner|constexpr|dtype|Parameter|tuple|list|int|float"
        r"|dict|NoneType|str)' object has no attribute '(?P<name>\w+)'",
    ),
    Kind(
        "attribute_missing",
        "host",
        "You cannot use an attribute that the module never set.",
        r"'\w+' object has no attribute '\w+'",
        "own",
    ),
    Kind(
        "entry_missing",
        "host",
        "You cannot leave out the class or function that the task asks for.",
        r"module '[\w.]+' has no attribute '(?:ModelNew|Model)'|the candidate defines no ",
        "entry",
        (),
    ),
    # --- values in kernels
    Kind(
        "not_callable",
        "language",
        "You cannot call a dtype such as tl.float32 as a function in a Triton kernel.",
        r"'(?P<construct>dtype)' object is not callable",
        "",
        IN_KERNEL,
    ),
    Kind(
        "not_callable",
        "language",
        "You cannot call {construct} as if it were a function.",
        r"'(?P<construct>tensor|constexpr|int|float|tuple|list|str|NoneType|Tensor|Autotuner|JITFunction)' object is not"
        r" callable",
    ),
    Kind(
        "index_block",
        "language",
        "You cannot index or slice a block in a Triton kernel with anything but None and a bare colon.",
        r"unsupported tensor index: ",
        "block",
        IN_KERNEL,
        ("[]",),
    ),
    Kind(
        "outside_jit",
        "language",
        "You cannot call functions of triton.language from {construct}.",
        r"Did you forget to add @triton\.jit",
        "code that is no @triton.jit function",
    ),
    Kind(
        "called_without_grid",
        "launch",
        "You cannot call a @triton.jit function from host code without a grid in square brackets.",
        r"Cannot call @triton\.jit'd outside of the scope of a kernel",
        "launch",
    ),
    Kind(
        "unsupported_node",
        "language",
        "You cannot use {construct} in a Triton kernel.",
        r"unsupported AST node type: (?P<construct>\w+)",
        "",
        IN_KERNEL,
    ),
    Kind(
        "unsupported_node",
        "language",
        "You cannot use {construct} in a Triton kernel.",
        r"nested function definitions? (?:is|are) not (?:supported|allowed)",
        "nested_function",
        IN_KERNEL,
    ),
    Kind(
        "unsupported_node",
        "language",
        "You cannot use {construct} in a Triton kernel.",
        r"simultaneous multiple comparison is not supported",
        "chained_comparison",
        IN_KERNEL,
    ),
    Kind(
        "unsupported_node",
        "language",
        "You cannot use {construct} in a Triton kernel.",
        r"chained boolean operators",
        "chained_boolean",
        IN_KERNEL,
    ),
    Kind(
        "unsupported_node",
        "language",
        "You cannot use {construct} in a Triton kernel.",
        r"We use SCF, so the loop body should only have one block|Cannot have `return` statements inside",
        "return_in_loop",
        IN_KERNEL,
    ),
    Kind(
        "foreign_function",
        "language",
        "You cannot call {construct} in a Triton kernel.",
        r"unsupported function (?P<construct>[\w.]+) referenced in a kernel",
        "function",
        IN_KERNEL,
    ),
    Kind(
        "plain_global",
        "language",
        "You cannot read a plain global in a Triton kernel: only one made as X = tl.constexpr(value) counts, the annotation"
        " X: tl.constexpr = value does not.",
        r"Cannot access global variable \w+ from within @jit",
        "global",
        IN_KERNEL,
    ),
    Kind(
        "undefined_name",
        "language",
        "You cannot use a name in a Triton kernel that is not defined on every path to it.",
        r"(?:name ')?\w+'? is not defined",
        "kernel",
        IN_KERNEL,
    ),
    Kind(
        "undefined_name",
        "host",
        "You cannot use a name in host code that is not defined there.",
        r"(?:name ')?\w+'? is not defined|cannot access local variable '\w+'|local variable '\w+' referenced before",
        "host",
        OUTSIDE,
    ),
    # --- types and shapes
    Kind(
        "loop_type",
        "language",
        "You cannot change the type or the shape of a variable that is carried around a loop in a Triton kernel.",
        r"Loop-carried variable \w+ has initial type|initial value for `\w+` is of type",
        "loop",
        IN_KERNEL,
        ("for",),
    ),
    Kind(
        "branch_type",
        "language",
        "You cannot give a variable different types or shapes in the branches of an if in a Triton kernel.",
        r"[Mm]ismatched type for \w+ between then block|Ternary expression with dynamic condition has inconsistent types",
        "if",
        IN_KERNEL,
        ("if",),
    ),
    Kind(
        "block_condition",
        "language",
        "You cannot use a block as the condition of an if or a while in a Triton kernel.",
        r"Boolean value of Tensor with more than one value is ambiguous|'scf\.condition' op operand #0 must be 1-bit",
        "condition",
        IN_KERNEL,
        ("if",),
    ),
    Kind(
        "arange_power",
        "language",
        "You cannot call tl.arange with a range that is not a power of two.",
        r"arange's range must be a power of 2",
        "tl.arange",
        IN_KERNEL,
        ("arange",),
    ),
    Kind(
        "arange_constexpr",
        "language",
        "You cannot call tl.arange with bounds that are not tl.constexpr.",
        r"arange's arguments must be of type tl\.constexpr",
        "tl.arange",
        IN_KERNEL,
        ("arange",),
    ),
    Kind(
        "shape_power",
        "language",
        "You cannot make a block whose extent is not a power of two.",
        r"(?:[^\n]* )?Shape element \d+ must be a power of 2",
        "block",
        IN_KERNEL,
        ("zeros", "full"),
    ),
    Kind(
        "shape_constexpr",
        "language",
        "You cannot make a block whose extent is not tl.constexpr.",
        r"Shape element \d+ must have type `constexpr",
        "block",
        IN_KERNEL,
        ("zeros", "full"),
    ),
    Kind(
        "numel_limit",
        "resource",
        "You cannot make a block of more elements than Triton allows, which is 1048576.",
        r"numel \(\d+\) exceeds triton maximum tensor numel",
        "block",
        IN_KERNEL,
        ("zeros", "full", "arange"),
    ),
    Kind(
        "incompatible_shapes",
        "language",
        "You cannot combine blocks whose extents along an axis differ, unless one of them is 1.",
        r"Cannot make_shape_compatible: incompatible|Cannot broadcast, |Cannot make_shape_compatible",
        "block",
        IN_KERNEL,
    ),
    Kind(
        "reshape_size",
        "language",
        "You cannot reshape a block to another number of elements.",
        r"reshape\(\) cannot change total number of elements",
        "tl.reshape",
        IN_KERNEL,
        ("reshape", "view"),
    ),
    Kind(
        "pointer_arithmetic",
        "language",
        "You cannot apply an operator to a pointer and a value other than adding a whole number.",
        r"invalid operands of type pointer<[^>]*>|invalid operands of type \S+ and pointer<",
        "pointer",
        IN_KERNEL,
    ),
    Kind(
        "operand_types",
        "language",
        "You cannot apply this operator to operands of these types in a Triton kernel.",
        r"invalid operands of type |unsupported operand type\(s\) for |unexpected type ",
        "operator",
        IN_KERNEL,
    ),
    Kind(
        "python_conversion",
        "language",
        "You cannot call Python's {construct}() on a value that is computed in a Triton kernel.",
        r"(?P<construct>float|int|bool|complex)\(\) argument must be ",
        "",
        IN_KERNEL,
    ),
    Kind(
        "python_conversion",
        "language",
        "You cannot call Python's {construct}() on a block in a Triton kernel.",
        r"object of type 'tensor' has no (?P<construct>len)\(\)",
        "",
        IN_KERNEL,
    ),
    Kind(
        "not_iterable",
        "language",
        "You cannot give a bare number where a Triton function takes a shape or a list.",
        r"'(?:int|float|constexpr)' object is not iterable",
        "shape",
        IN_KERNEL,
        ("zeros", "full"),
    ),
    Kind(
        "elementwise_dtype",
        "language",
        "You cannot call an elementwise function such as tl.exp on a dtype that it does not take.",
        r"Expected dtype \[",
        "tl.exp",
        IN_KERNEL,
        ("exp", "log", "sqrt", "sigmoid", "rsqrt"),
    ),
    Kind(
        "invalid_axis",
        "language",
        "You cannot reduce a block along an axis that it does not have.",
        r"invalid axis -?\d+",
        "axis",
        IN_KERNEL,
        ("sum", "max", "min", "argmax", "argmin"),
    ),
    Kind(
        "loop_bounds",
        "language",
        "You cannot use bounds that are not integers in a for loop of a Triton kernel.",
        r"For loop bounds and step must all be ints",
        "for",
        IN_KERNEL,
        ("for",),
    ),
    Kind(
        "static_range_constexpr",
        "language",
        "You cannot give tl.static_range bounds that are known at run time only.",
        r"\S+ used as tl\.static_range \w+ value is not a constexpr",
        "tl.static_range",
        IN_KERNEL,
        ("static_range",),
    ),
    Kind(
        "load_other",
        "language",
        "You cannot pass other to tl.load without a mask.",
        r"`other` cannot be provided without `mask`",
        "tl.load",
        IN_KERNEL,
        ("load",),
    ),
    Kind(
        "scalar_pointer",
        "language",
        "You cannot store a block, or use a block as a mask, through a pointer that is no block.",
        r"(?:Value|Mask|Other) argument cannot be block type if pointer argument is not a block",
        "pointer",
        IN_KERNEL,
        ("store", "load"),
    ),
    Kind(
        "no_pointer",
        "language",
        "You cannot load from or store to a value that is no pointer.",
        r"Unsupported ptr type ",
        "pointer",
        IN_KERNEL,
        ("load", "store"),
    ),
    Kind(
        "dot_size",
        "language",
        "You cannot call tl.dot on blocks that are too small: K must be at least 16.",
        r"Input shapes should have M >= \d+",
        "tl.dot",
        IN_KERNEL,
        ("dot",),
    ),
    Kind(
        "dot_rank",
        "language",
        "You cannot call tl.dot on blocks with fewer than two dimensions.",
        r"input and other must have equal ranks|Both inputs must be either 2D or 3D",
        "tl.dot",
        IN_KERNEL,
        ("dot",),
    ),
    Kind(
        "dot_inner",
        "language",
        "You cannot call tl.dot on blocks whose inner dimensions differ.",
        r"input and other must have equal reduction dimensions|First input shape .* are not compatible for matmul",
        "tl.dot",
        IN_KERNEL,
        ("dot",),
    ),
    Kind(
        "dot_dtype",
        "language",
        "You cannot call tl.dot on operands of different dtypes.",
        r"Both operands must be same dtype",
        "tl.dot",
        IN_KERNEL,
        ("dot",),
    ),
    Kind(
        "permute_rank",
        "language",
        "You cannot transpose or permute a block with a different number of dimensions.",
        r"permute dims must have the same length",
        "tl.trans",
        IN_KERNEL,
        ("trans", "permute"),
    ),
    Kind(
        "static_assert",
        "language",
        "You cannot launch a kernel with constants that its own static_assert refuses.",
        r"static_assert failed",
        "tl.static_assert",
        IN_KERNEL,
    ),
    # --- arguments of calls and launches
    Kind(
        "launch_missing",
        "launch",
        "You cannot launch a Triton kernel without every argument that has no default.",
        r"(?:dynamic_func|KERNEL)\(\) missing \d+ required positional argument",
        "launch",
    ),
    Kind(
        "launch_twice",
        "launch",
        "You cannot pass an argument of a Triton kernel both by position and by name.",
        r"(?:dynamic_func|KERNEL)\(\) got multiple values for argument",
        "launch",
    ),
    Kind(
        "launch_keyword",
        "launch",
        "You cannot launch a Triton kernel with a keyword that is neither its parameter nor a launch option.",
        r"Keyword argument (?P<name>\w+) was specified but unrecognised"
        r"|(?:dynamic_func|KERNEL)\(\) got an unexpected keyword argument",
        "launch",
    ),
    Kind(
        "launch_too_many",
        "launch",
        "You cannot launch a Triton kernel with more positional arguments than it has parameters.",
        r"(?:dynamic_func|KERNEL)\(\) takes \d+ positional arguments? but|too many positional arguments",
        "launch",
    ),
    Kind(
        "launch_grid",
        "launch",
        "You cannot give a kernel's grid as a bare integer: it is a tuple or a function.",
        r"object of type 'int' has no len\(\)|'int' object is not subscriptable",
        "grid",
        ("launch", "compile"),
    ),
    Kind(
        "launch_argument",
        "launch",
        "You cannot pass a value to a Triton kernel that is no tensor, number or constant.",
        r"failed to specialize argument of type",
        "launch",
    ),
    Kind(
        "host_tensor",
        "launch",
        "You cannot launch a Triton kernel on a tensor in host memory.",
        r"Pointer argument \(at \d+\) cannot be accessed from Triton",
        "launch",
    ),
    Kind(
        "num_warps_power",
        "launch",
        "You cannot launch a Triton kernel with num_warps that is no power of two.",
        r"num_warps must be a power of 2",
        "num_warps",
    ),
    Kind(
        "autotune_conflict",
        "launch",
        "You cannot pass an argument at the launch that triton.autotune sets in its configurations.",
        r"Conflicting meta-parameters: ",
        "triton.autotune",
        (),
        ("autotune",),
    ),
    Kind(
        "autotune_key",
        "launch",
        "You cannot name in the key of triton.autotune what is no argument of the kernel.",
        r"key contains names that are not kernel arguments|'\w+' is not in list",
        "triton.autotune",
        (),
        ("autotune",),
    ),
    Kind(
        "call_keyword",
        "language",
        "You cannot pass {names} to {construct}.",
        r"(?:tl\.)?(?P<construct>\w+)(?:\.__init__)?(?:\(\)|:) got an unexpected keyword argument '(?P<name>\w+)'",
        "a function",
    ),
    Kind(
        "call_arguments",
        "language",
        "You cannot call {construct} without all of its required arguments.",
        r"(?:tl\.)?(?P<construct>\w+)(?:\.\w+)?(?:\(\)|:) missing (?:a|\d+) required (?:positional )?argument",
        "a function",
    ),
    Kind(
        "call_arguments",
        "host",
        "You cannot call {construct} with more arguments than it takes.",
        r"(?:\w+\.)?(?P<construct>\w+)\(\) takes (?:from )?\d+ (?:to \d+ )?positional arguments? but",
        "a function",
    ),
    Kind(
        "call_builtin",
        "language",
        "You cannot call {construct} with arguments of these types in a Triton kernel.",
        r"(?:tl\.)?(?P<construct>\w+): create_\w+\(\): incompatible function arguments|\w+\(\): incompatible function",
        "a function",
        IN_KERNEL,
    ),
    # --- resources
    Kind(
        "out_of_resource",
        "resource",
        "You cannot launch a Triton kernel that needs more {construct} than the device has.",
        r"out of resource: (?P<construct>shared memory|registers|threads|tensor memory)",
        "",
    ),
    # --- torch
    Kind(
        "matrix_shapes",
        "host",
        "You cannot multiply matrices whose inner dimensions differ.",
        r"mat1 and mat2 shapes cannot be multiplied",
        "torch",
    ),
    Kind(
        "mixed_devices",
        "host",
        "You cannot combine tensors on different devices in one torch operation.",
        r"Expected all tensors to be on the same device",
        "torch",
    ),
    Kind(
        "mixed_dtypes",
        "host",
        "You cannot give one torch operation tensors of different dtypes.",
        r"Expected out tensor to have dtype|Float did not match|expected m1 and m2 to have the same dtype|mat1 and mat2 must"
        r" have the same dtype|Input type \(\S+\) and (?:weight|bias) type|expected scalar type",
        "torch",
    ),
    Kind(
        "out_and_gradients",
        "host",
        "You cannot pass out= to a torch function whose arguments require gradients.",
        r"(?:\w+\(\): )?functions with out=\.\.\. arguments don't support automatic differentiation",
        "torch",
    ),
    Kind(
        "view_strides",
        "host",
        "You cannot call view on a tensor whose strides do not allow that shape.",
        r"view size is not compatible with input tensor's size and stride",
        "torch",
    ),
    Kind(
        "mark_dirty",
        "host",
        "You cannot mark as dirty in an autograd function what is no variable.",
        r"mark_dirty can only accept variables",
        "torch",
    ),
    Kind(
        "numpy_gradients",
        "host",
        "You cannot call numpy() on a tensor that requires gradients.",
        r"Can't call numpy\(\) on Tensor that requires grad",
        "torch",
    ),
    Kind(
        "argument_type",
        "host",
        "You cannot give a torch function or a kernel a tuple where it takes a whole number.",
        r"'tuple' object cannot be interpreted as an integer",
        "call",
    ),
)
"""Every kind that is known by a message, in the order in which they are tried."""

KINDS_BY_ID = {kind.id: kind for kind in reversed(KINDS)}
"""By id; of several with one id, the first."""

CHECKS: Mapping[str, tuple[Subject, str]] = {
    "values": ("numeric", "You cannot return values that differ from the reference beyond its own rounding."),
    "shape": ("numeric", "You cannot return an output of another shape than the reference."),
    "dtype": ("numeric", "You cannot return an output of another dtype than the reference."),
    "structure": ("numeric", "You cannot return outputs in other containers or another number than the reference."),
    "device": ("numeric", "You cannot return an output on another device than the inputs."),
    "nonfinite": ("numeric", "You cannot return NaN or infinity where the reference is finite."),
    "precision_class": ("numeric", "You cannot compute in narrower arithmetic than the task's dtype where its precision must match."),
    "out_of_bounds": ("numeric", "You cannot access memory outside of a tensor: lanes beyond its end must be masked."),
    "illegal_memory_access": ("numeric", "You cannot access memory outside of a tensor: lanes beyond its end must be masked."),
    "misaligned_access": ("numeric", "You cannot access an address that is not aligned to the width of the access."),
    "misaligned_address": ("numeric", "You cannot access an address that is not aligned to the width of the access."),
    "unwritten": ("numeric", "You cannot leave elements of an output unwritten."),
    "race": ("numeric", "You cannot let two programs write one address without atomics."),
    "program_order": ("numeric", "You cannot rely on the order in which the programs of a launch run."),
    "input_mutated": ("numeric", "You cannot change an input in place unless the task says so."),
    "output_overwritten": ("numeric", "You cannot return memory that a later call writes again."),
    "device_assert": ("numeric", "You cannot call a kernel with values that its own device_assert refuses."),
    "stale_output": ("conduct", "You cannot return a cached result instead of computing it in every call."),
    "output_aliases_input": ("conduct", "You cannot return memory of an input as an output."),
    "outputs_kept_writable": ("conduct", "You cannot keep writing to outputs after they were returned."),
    "output_type": ("conduct", "You cannot return anything but plain tensors."),
    "forged_result": ("conduct", "You cannot send a result past the call."),
    "patched": ("conduct", "You cannot replace functions of torch, Triton or Python."),
    "signal_sent": ("conduct", "You cannot send signals from a kernel."),
    "process_started": ("conduct", "You cannot start processes while a kernel is called."),
    "late_work": ("conduct", "You cannot go on working once the call has returned."),
    "library_ops": ("conduct", "You cannot let torch do the work of a task that forbids library operators."),
    "deadline": ("resource", "You cannot exceed the time limit: loops must end, and what a program waits for must come."),
    "memory": ("resource", "You cannot allocate more memory than the device or the limit allows."),
    "exit": ("conduct", "You cannot end the process from a kernel's host code."),
    "signal": ("numeric", "You cannot make an access that ends the process."),
}  # fmt: skip
"""By check of an outcome: the subject and the words of its rule."""

SAME_CHECK = {"illegal_memory_access": "out_of_bounds", "misaligned_address": "misaligned_access"}
"""Checks of a GPU that see what the interpreter calls otherwise."""

_MANY_CAUSES = re.compile(
    r"(?:check|own_check|syntax|out_of_resource):|other:(?:host|launch):|attribute_missing:own$|operand_types:operator$"
)

_WORDS: Mapping[str, Callable[[str], str]] = {
    "not_callable": lambda name: f"a value of type {name}",
    "operand_is_no_block": lambda name: {"NoneType": "None", "str": "a string"}.get(name, f"a {name}"),
    "unsupported_node": lambda name: NODE_WORDS.get(name, f"the syntax {name}"),
    "attribute_missing": lambda name: f"an object of type {name}",
}


def constructs_in_words(kind: str, construct: str) -> str:
    """Return how a rule of a kind calls a construct."""
    return _WORDS[kind](construct) if kind in _WORDS else construct


def of_many_causes(key: str) -> bool:
    """Tell whether failures with a fingerprint have only in common what went wrong: each may have another cause."""
    return _MANY_CAUSES.match(key) is not None


@functools.lru_cache(maxsize=4096)
def kind_of(key: str) -> Kind | None:
    """Return the kind whose words fit the fingerprint with this key, or None for one that no message makes."""
    name, _, construct = key.partition(":")
    same = [kind for kind in KINDS if kind.id == name]
    exact = [kind for kind in same if kind.construct == construct]
    inside = [kind for kind in same if f"(?P<construct>{construct})" in kind.pattern]
    return next(iter(exact or inside or same), None)
