"""Errors as their author needs them: what is wrong, and at which line of which file."""

import textwrap

import pytest

KERNEL = """
@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
{body}
    tl.store(y_ptr + o, x, mask=o < n)


def run():
    x = torch.ones(512, device="cuda")
    scale[(4,)](x, torch.empty_like(x), 512, BLOCK=128)
"""

# The body of a kernel with the mark of the line that is wrong, and the words of a good message.
WRONG = {
    "a condition on a block": ("if x > 0:  # here\n    x = x * 2.0", ["ambiguous", "tl.where"]),
    "break": ("for i in range(3):\n    if i > 1:\n        break  # here\n    x += 1", ["break", "mask"]),
    "continue": ("for i in range(3):\n    if i > 1:\n        continue  # here\n    x += 1", ["continue"]),
    "return in a loop": (
        "for i in range(n):\n    if i > 1:  # here\n        return\n    x += 1",
        ["return", "loop"],
    ),
    "lambda": ("f = lambda v: v * 2  # here\nx = f(x)", ["lambda", "@triton.jit"]),
    "a slice of a block": ("x = x[0:64]  # here", ["index"]),
    "an element of a block": ("x = x + x[n]  # here", ["cannot be indexed"]),
    "an axis of a scalar": ("x = x + n[None, :]  # here", ["a scalar cannot be indexed"]),
    "an assignment to an element": ("y_ptr[o] = x  # here", ["tl.store"]),
    "a runtime bound": ("x += tl.arange(0, n)  # here", ["constexpr"]),
    "a float bound": ("x += tl.arange(0, BLOCK / 2)  # here", ["arange", "//"]),
    "a block too large": ("x += tl.sum(tl.arange(0, 2097152))  # here", ["1048576"]),
    "a changing type": ("t = 0.0\nfor i in range(2):  # here\n    t = t + x\nx = t", ["t", "type"]),
    "shapes that do not agree": (
        "x += tl.load(x_ptr + o, mask=tl.arange(0, 64) < n)  # here",
        ["tl.load", "shape"],
    ),
    "a dot of vectors": ("x += tl.dot(x, x)  # here", ["dot"]),
    "an unknown name": ("x = x * missing  # here", ["missing is not defined"]),
    "a failed assertion": (
        'tl.static_assert(BLOCK == 64, "block must be 64")  # here',
        ["static_assert", "must be 64"],
    ),
    "a function of torch": ("x = torch.relu(x)  # here", ["unsupported function torch.relu", "@triton.jit"]),
    "a type of torch's": ("x = x.to(torch.float32)  # here", ["tl.float32"]),
    "the shape of a pointer": ("n = x_ptr.shape[0]  # here", ["a pointer has no shape"]),
    "the larger of two by a reduction": ("x = tl.max(x, 0.0)  # here", ["tl.maximum(a, b)"]),
    "a float bound of a loop": ("for i in range(0.0, n):  # here\n    x += 1", ["must all be ints"]),
    "two types of a branch": (
        "if n > 5:  # here\n    z = x\nelse:\n    z = o\nx += z",
        ["Mismatched type", "both sides"],
    ),
    "other without a mask": ("x = tl.load(x_ptr + o, other=0.0)  # here", ["without `mask`"]),
    "an unknown function of triton": ("x = tl.no_such_function(x)  # here", ["no_such_function"]),
    "a while on a block": (
        "while x < 0.0:  # here\n    x += 1.0",
        ["condition of while is a block", "ambiguous", "tl.max"],
    ),
    "a function of libdevice": (
        "x = tl.math.tanh(x)  # here",
        ["no attribute 'tanh'", "from triton.language.extra import libdevice"],
    ),
    "libdevice without its import": (
        "x = libdevice.tanh(x)  # here",
        ["not defined", "from triton.language.extra import libdevice"],
    ),
    "a missing dtype": ("x += tl.zeros((BLOCK,))  # here", ["missing", "'dtype'"]),
}


def wrong(body):
    return KERNEL.replace("{body}", textwrap.indent(body, "    "))


@pytest.mark.parametrize("what", WRONG)
def test_an_error_in_a_kernel_points_at_the_construct(compiled, what):
    body, words = WRONG[what]
    outcome = compiled(wrong(body))
    error = outcome.error
    assert error is not None
    assert error.kernel == "scale"
    assert error.file == outcome.file
    assert "# here" in outcome.lines[error.line - 1], (error.line, error.source, error.message)
    assert error.source == outcome.lines[error.line - 1].strip()
    for word in words:
        assert word.lower() in error.message.lower()
    assert " at 0x" not in error.message
    assert outcome.builds[-1].excerpt.message == error.message
    assert outcome.builds[-1].failure == "language"
    assert outcome.printed == ""


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("other without a mask", "broadcast"),
        ("a float bound of a loop", "carried"),
        ("two types of a branch", "must be a scalar"),
        ("a type of torch's", "broadcast"),
        ("a missing dtype", "shape must"),
        ("an unknown function of triton", "libdevice"),
    ],
)
def test_a_remedy_for_another_cause_is_not_given(compiled, what, word):
    assert word not in compiled(wrong(WRONG[what][0])).error.message


def test_a_function_that_calls_itself_is_told_to_be_a_loop(compiled):
    helper = "@triton.jit\ndef again(a):\n    if a > 0:\n        a = again(a - 1)  # here\n    return a\n\n\n"
    outcome = compiled(helper + wrong("x += again(n)"))
    assert "cannot call itself (recursion): write a loop" in outcome.error.message
    assert "again__" not in outcome.error.message
    assert "# here" in outcome.lines[outcome.error.line - 1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("None, y, 512, BLOCK=128", ["an argument is None"]),
        ("x, y, 512, BLOCK=x", ["given for a parameter that is annotated tl.constexpr"]),
    ],
)
def test_an_argument_that_is_no_pointer_or_no_constant_is_named_so(compiled, given, words):
    source = wrong("x += tl.sum(tl.full((2,), BLOCK, tl.float32))").replace(
        "arange(0, BLOCK)", "arange(0, 128)"
    )
    outcome = compiled(
        source.replace("x, torch.empty_like(x), 512, BLOCK=128", given.replace("y", "torch.empty_like(x)"))
    )
    for word in words:
        assert word in outcome.error.message


def test_a_block_size_without_constexpr_is_named_so(compiled):
    outcome = compiled(wrong("pass").replace("BLOCK: tl.constexpr", "BLOCK"))
    assert "tl.constexpr" in outcome.error.message
    assert "tl.arange(0, BLOCK)" in outcome.error.source


def test_a_name_that_no_function_can_have_is_said(compiled):
    outcome = compiled(wrong("pass").replace("scale", "größe"))
    assert "invalid function identifier: größe" in outcome.error.message


TUNED = """
@triton.autotune(configs=[{configs}], key=[{key}])
@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + o, 1.0, mask=o < n)


def run():
    x = torch.ones(512, device="cuda")
    scale[(4,)](x, 512{given})
"""


@pytest.mark.parametrize(
    ("configs", "key", "given", "words"),
    [
        (["BLOCK_SIZE"], "'n'", "", "the configuration sets BLOCK_SIZE, which the kernel does not have"),
        (["BLOCK"] * 2, "'n'", ", BLOCK=64", "Conflicting meta-parameters: BLOCK"),
    ],
)
def test_a_kernel_declared_otherwise_than_it_is_launched_is_named(compiled, configs, key, given, words):
    each = [f"triton.Config({{'{name}': {64 << place}}})" for place, name in enumerate(configs)]
    source = TUNED.replace("{configs}", ", ".join(each)).replace("{key}", key).replace("{given}", given)
    outcome = compiled(source)
    assert words in outcome.error.message
    assert outcome.error.kernel == "scale"


def test_what_a_hook_of_an_autotuner_raises_is_no_matter_of_the_kernel(compiled):
    source = TUNED.replace("{configs}", "triton.Config({'BLOCK': 64}, pre_hook=lambda given: {}['x'])")
    outcome = compiled(source.replace("{key}", "").replace("{given}", ""))
    assert outcome.raised == "KeyError"
    assert outcome.error.kernel == ""


def test_an_argument_that_a_heuristic_asks_for_is_named(compiled):
    source = wrong("pass").replace(
        "@triton.jit", "@triton.heuristics({'EVEN': lambda args: args['M'] % 2})\n@triton.jit"
    )
    outcome = compiled(source.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, EVEN: tl.constexpr"))
    assert "a heuristic asks for argument M, which the kernel does not have" in outcome.error.message
    assert outcome.error.kernel == "scale"


def test_a_kernel_that_is_a_method_is_told_so(compiled):
    outcome = compiled(wrong("pass").replace("(x_ptr, y_ptr, n,", "(self, x_ptr, y_ptr, n,"))
    assert "passes nothing for self" in outcome.error.message


HELPERS = """
@triton.jit
def inner(v, n):
    return v[n]  # here


@triton.jit
def outer(v, n):
    return inner(v, n) + 1
"""


def test_an_error_in_a_helper_is_shown_where_the_helper_is_wrong(compiled):
    outcome = compiled(HELPERS + wrong("x = outer(x, n)"))
    assert outcome.error.kernel == "scale"
    assert "# here" in outcome.lines[outcome.error.line - 1]
    assert "cannot be indexed" in outcome.error.message


def test_an_error_inside_tritons_own_library_is_shown_at_the_call(compiled):
    outcome = compiled(wrong("x += tl.sum(x, axis=3)  # here"))
    assert "# here" in outcome.lines[outcome.error.line - 1]
    assert outcome.error.file == outcome.file


def test_a_foreign_function_in_a_helper_is_found_in_the_helper(compiled):
    helper = "@triton.jit\ndef soft(v):\n    return torch.relu(v)  # here\n\n\n"
    outcome = compiled(helper + wrong("x = soft(x)"))
    assert "# here" in outcome.lines[outcome.error.line - 1]
    assert "torch.relu" in outcome.error.message


def test_a_helper_in_another_file_of_the_author_is_found(compiled, tmp_path):
    other = tmp_path / "helpers_of_mine.py"
    other.write_text("import triton\n\n\n@triton.jit\ndef pick(v, n):\n    return v[n]\n")
    outcome = compiled(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom helpers_of_mine import pick\n"
        + wrong("x = pick(x, n)  # here")
    )
    # Only the candidate's own file was named, so the innermost line in it is the call.
    assert "# here" in outcome.lines[outcome.error.line - 1]
    assert "cannot be indexed" in outcome.error.message


def test_decorators_and_comments_above_a_kernel_do_not_move_the_line(compiled):
    source = (
        wrong("x = x[n]  # here")
        .replace(
            "@triton.jit\ndef scale",
            "# a comment\n@triton.heuristics({'EVEN': lambda args: True})\n@triton.jit\n# another\ndef scale",
        )
        .replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr, EVEN: tl.constexpr):")
    )
    outcome = compiled(source)
    assert "# here" in outcome.lines[outcome.error.line - 1]


def test_a_kernel_defined_inside_a_function_keeps_its_lines(compiled):
    kernel = textwrap.indent(wrong("x = x[n]  # here").split("\n\n\ndef run")[0].strip(), "    ")
    outcome = compiled(
        f"def run():\n{kernel}\n\n    x = torch.ones(512, device='cuda')\n"
        "    scale[(4,)](x, torch.empty_like(x), 512, BLOCK=128)\n"
    )
    assert "# here" in outcome.lines[outcome.error.line - 1]


def test_an_error_that_the_code_wraps_is_still_the_compilers(compiled):
    outcome = compiled(
        wrong("x = x[n]  # here").replace("def run():", "def launch():")
        + "\n\ndef run():\n    try:\n        launch()\n    except Exception as error:\n"
        "        raise RuntimeError('could not run') from error\n"
    )
    assert outcome.raised == "RuntimeError"
    assert outcome.error.type == "CompilationError"
    assert "# here" in outcome.lines[outcome.error.line - 1]


def test_an_ordinary_error_in_host_code_is_shown_at_its_line(compiled):
    outcome = compiled(
        "def run():\n    x = torch.ones(3, device='cuda')\n    return x.reshape(2, 2)  # here\n"
    )
    assert outcome.error.kernel == ""
    assert "# here" in outcome.lines[outcome.error.line - 1]
    assert "shape" in outcome.error.message
    outcome = compiled("def run():\n    return {}['missing']  # here\n")
    assert (outcome.error.type, outcome.error.message) == ("KeyError", "missing")


def test_a_syntax_error_is_shown_at_its_line(compiled):
    outcome = compiled("def run():\n    return (1,\n")
    assert outcome.error.type == "SyntaxError"
    assert outcome.error.file == outcome.file
    assert outcome.error.line == len(outcome.lines)


def test_a_long_message_is_cut(compiled):
    outcome = compiled("def run():\n    raise ValueError('x' * 100000)\n")
    assert 1000 < len(outcome.error.message) < 3000


def test_what_a_later_pass_refuses_is_explained_by_what_it_wrote(compiled):
    outcome = compiled(
        wrong(
            'x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x],  # here\n'
            "                              dtype=tl.float32, is_pure=True, pack=3)"
        )
    )
    assert outcome.error.type == "RuntimeError"
    assert "multiple of the op's packed_element attribute" in outcome.error.message
    assert "while compiling scale" in outcome.error.message
    assert "# here" in outcome.lines[outcome.error.line - 1]
    assert outcome.printed == ""


def test_a_compiler_that_ends_the_process_leaves_its_last_words(compiled):
    outcome = compiled(
        wrong(
            'x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
        )
    )
    assert outcome.died
    assert outcome.said["type"] == "CompilerCrash"
    assert "while it compiled scale: " in outcome.said["message"]
    assert "number of input constraints" in outcome.said["message"]
    assert outcome.said["source"].startswith("def scale(")


def test_last_words_name_no_file_but_the_authors(tmp_path):
    from adaexplore_mcp.evaluation.workers.compiler.capture import last_words

    assert last_words(tmp_path) is None
    (tmp_path / "compiler-said-7").write_text('["k", "/etc/passwd", 1]\nsomething\n')
    said = last_words(tmp_path, files=["/candidate.py"])
    assert (said.kernel, said.file, said.line, said.source) == ("k", "", 0, "")
    (tmp_path / "compiler-said-7").write_text("not what was written")
    assert last_words(tmp_path) is None


def test_an_error_that_cannot_be_told_is_told_so(compiled):
    outcome = compiled(
        "class Odd(Exception):\n    def __str__(self):\n        raise ZeroDivisionError\n\n\n"
        "def run():\n    raise Odd  # here\n"
    )
    assert outcome.error.type == "Odd"
    assert "could not be read: ZeroDivisionError" in outcome.error.message
    assert "# here" in outcome.lines[outcome.error.line - 1]
