"""What stands between code and hardware: `torch.compile`, CUDA C++ extensions, and TorchScript's compiled functions."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from .ledger import Ledger
from .patches import Patches
from .tags import mark, tag_of, tensors_in
from .versions import SCRIPT_CALLABLES

__all__ = ["patch_compilation"]

CPP_EXTENSION = "torch.utils.cpp_extension"
CPP_REASON = "CUDA C++ needs a GPU and nvcc"
REFUSED = (
    "load load_inline _jit_compile CUDAExtension CppExtension BuildExtension SyclExtension include_paths library_paths"
    " verify_ninja_availability is_ninja_available check_compiler_ok_for_platform"
)
COMPILE_NOTE = "torch.compile was replaced by the plain function"


def patch_compilation(patches: Patches, ledger: Ledger) -> None:
    """Patch the three until `patches` are undone."""
    _patch_torch_compile(patches, ledger)
    _patch_extensions(patches, ledger)
    _patch_script(patches)


def _patch_torch_compile(patches: Patches, ledger: Ledger) -> None:
    def compile(model: Any = None, **options: Any) -> Any:  # noqa: A001, ANN401, ARG001 - torch's name and options
        ledger.answers["torch.compile"] += 1
        ledger.note(COMPILE_NOTE)
        return (lambda function: function) if model is None else model

    def leave(fn: Any = None, *args: Any, **options: Any) -> Any:  # noqa: ANN401, ARG001 - torch's options
        return (lambda function: function) if fn is None else fn

    patches.replace(torch, "compile", compile)
    # These import torch's compiler (2 s, and it rebinds `torch.manual_seed`) only to leave the function as it is.
    patches.replace(torch.compiler, "disable", leave)
    patches.replace(torch.compiler, "allow_in_graph", leave)


class _Refused(ModuleType):
    """`torch.utils.cpp_extension` without its import of setuptools: every function in it refuses when called."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(CPP_EXTENSION)
        self.__path__: list[str] = []
        self.CUDA_HOME = None
        self.ROCM_HOME = None
        self.IS_WINDOWS = False
        for name in REFUSED.split():
            setattr(self, name, _refusing(ledger, f"{CPP_EXTENSION}.{name}"))


def _refusing(ledger: Ledger, name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, ARG001 - as torch's, whatever they are
        ledger.refuse(name, CPP_REASON)

    return function


def _patch_extensions(patches: Patches, ledger: Ledger) -> None:
    """Stand in for the module before code can import it, or for its functions where it was imported already."""
    module = sys.modules.get(CPP_EXTENSION)
    if module is None:
        refused = _Refused(ledger)
        patches.replace_item(sys.modules, CPP_EXTENSION, refused)
        patches.replace(torch.utils, "cpp_extension", refused)
        return
    for name in REFUSED.split():
        patches.replace_existing(module, name, _refusing(ledger, f"{CPP_EXTENSION}.{name}"))


def _patch_script(patches: Patches) -> None:
    """Tag what TorchScript returns: its calls reach no function mode."""
    for kind in SCRIPT_CALLABLES:
        patches.replace(kind, "__call__", _tagging(vars(kind)["__call__"]))


def _tagging(call: Callable[..., Any]) -> Callable[..., Any]:
    def tagged(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a compiled function's arguments
        result = call(self, *args, **kwargs)
        tags = {tag_of(each) for each in tensors_in((*args, *kwargs.values()))}
        mark(result, True if True in tags else False if False in tags else None)
        return result

    return tagged
