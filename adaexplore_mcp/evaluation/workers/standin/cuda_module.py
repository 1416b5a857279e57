"""Answer for `torch.cuda` and the places around it that speak of a device.

Three kinds of functions: those with an honest answer (there is one device, and its properties are the target's), those
that may do nothing (synchronising, emptying caches), and those that would be a measurement or need real hardware, which
are refused and written down.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from uuid import NAMESPACE_OID, UUID, uuid5

import torch

from adaexplore_mcp.evaluation.workers.targets import Target

from .devices import CUDA, CUDA_0, names_cuda
from .frames import Caller
from .ledger import MEASUREMENT, Ledger
from .mode import DeviceMode
from .patches import Patches
from .streams import DEFAULT_STREAM, WORK, DeviceGuard, Stream, StreamContext, make_streams
from .tags import retag, tag_of, tensors_in
from .versions import PARSE_TO, PARSER_OF_TO, frame_above

__all__ = ["DeviceProperties", "patch_cuda"]

# Names that a version of torch lacks are skipped.
MEASUREMENTS = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached max_memory_cached"
    " memory_stats memory_stats_as_nested_dict memory_snapshot memory_summary mem_get_info list_gpu_processes"
    " host_memory_stats host_memory_stats_as_nested_dict device_memory_used utilization memory_usage temperature"
    " power_draw clock_rate"
)
DO_NOTHING = (
    "init empty_cache ipc_collect reset_peak_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached reset_accumulated_memory_stats reset_peak_host_memory_stats"
    " reset_accumulated_host_memory_stats set_per_process_memory_fraction set_device set_sync_debug_mode"
    " caching_allocator_enable"
)
HARDWARE = {
    "make_graphed_callables": "CUDA graphs record what a GPU runs",
    "graph_pool_handle": "CUDA graphs record what a GPU runs",
    "current_blas_handle": "it is a handle of cuBLAS",
    "current_solver_handle": "it is a handle of cuSOLVER",
    "cudart": "it is the CUDA runtime",
    "caching_allocator_alloc": "it is an address in a GPU's memory",
    "change_current_allocator": "it replaces the allocator of a GPU's memory",
    "_compile_kernel": "CUDA C++ needs a GPU and NVRTC",
    "jiterator": "CUDA C++ needs a GPU and NVRTC",
    "_sleep": "it waits for a number of a GPU's clock cycles",
}
GRAPHS = "CUDA graphs record what a GPU runs"
ACCELERATOR_MEASUREMENTS = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats get_memory_info"
)
ACCELERATOR_NOTHING = "synchronize empty_cache reset_peak_memory_stats reset_accumulated_memory_stats set_device_index set_device_idx"


@dataclass(frozen=True)
class DeviceProperties:
    """What `torch.cuda.get_device_properties` answers, by torch's names; sizes in bytes, clocks in kHz."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    uuid: UUID
    pci_bus_id: int = 1
    pci_device_id: int = 0
    pci_domain_id: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    gcnArchName: str = ""  # noqa: N815 - torch's name

    @classmethod
    def of(cls, target: Target) -> "DeviceProperties":
        """Return the properties of a target."""
        major, minor = target.capability
        return cls(
            name=target.device_name,
            major=major,
            minor=minor,
            total_memory=target.memory_bytes,
            multi_processor_count=target.multiprocessors,
            warp_size=target.warp_size,
            max_threads_per_multi_processor=target.threads_per_multiprocessor,
            max_threads_per_block=target.threads_per_block,
            regs_per_multiprocessor=target.registers_per_multiprocessor,
            shared_memory_per_block=target.shared_bytes_per_block,
            shared_memory_per_block_optin=target.shared_bytes_per_block_optin,
            shared_memory_per_multiprocessor=target.shared_bytes_per_multiprocessor,
            L2_cache_size=target.l2_bytes,
            clock_rate=target.clock_khz,
            memory_clock_rate=target.memory_clock_khz,
            memory_bus_width=target.memory_bus_bits,
            uuid=uuid5(NAMESPACE_OID, target.device_name),
        )


class _Cuda:
    """Makes the replacements, each of which counts its answers."""

    def __init__(self, patches: Patches, mode: DeviceMode) -> None:
        self.patches = patches
        self.ledger = mode.ledger
        self.callers = mode.callers

    def answer(self, owner: Any, names: str, answer: Any) -> None:  # noqa: ANN401 - a module, and any value
        """Let those of the named functions that exist give the answer, whatever their arguments."""
        for name in names.split():
            full = f"{owner.__name__}.{name}"
            self.patches.replace_existing(owner, name, _answering(self.ledger, full, answer))

    def answer_others(self, owner: Any, name: str, answer: Any) -> None:  # noqa: ANN401 - a module, and any value
        """Let a function give the answer to everyone but torch's own code, which goes on by it to what is not here."""
        truth = getattr(owner, name)
        told = _answering(self.ledger, f"{owner.__name__}.{name}", answer)
        callers = self.callers

        def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as torch's
            library = callers.kind(frame_above(1)) is Caller.LIBRARY
            return truth(*args, **kwargs) if library else told()

        self.patches.replace(owner, name, function)

    def refuse(self, owner: Any, names: str, reason: str) -> None:  # noqa: ANN401 - a module
        """Let those of the named functions that exist refuse."""
        for name in names.split():
            self.patches.replace_existing(owner, name, self.refusing(f"{owner.__name__}.{name}", reason))

    def refusing(self, name: str, reason: str) -> Callable[..., Any]:
        """Return a function of any arguments that refuses."""
        ledger = self.ledger

        def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, ARG001 - as torch's, whatever they are
            ledger.refuse(name, reason)

        return function

    def refusing_class(self, name: str, reason: str) -> type:
        """Return a class that refuses to be instantiated, for code that also uses it as a type."""
        ledger = self.ledger

        class Refused:
            def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401, ARG004 - as torch's
                ledger.refuse(name, reason)

        return Refused


def _answering(ledger: Ledger, name: str, answer: Any) -> Callable[..., Any]:  # noqa: ANN401 - any value
    def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, ARG001 - as torch's, whatever they are
        ledger.answers[name] += 1
        return answer

    return function


def patch_cuda(patches: Patches, mode: DeviceMode, target: Target) -> None:
    """Patch `torch.cuda`, `torch.accelerator`, generators and default devices until `patches` are undone."""
    cuda = _Cuda(patches, mode)
    _patch_facts(cuda, target)
    _patch_streams(cuda)
    _patch_random(cuda)
    _patch_refusals(cuda)
    _patch_accelerator(cuda, target)
    _patch_default_device(cuda, mode)
    _patch_loading(cuda)


def _patch_facts(cuda: _Cuda, target: Target) -> None:
    for name, answer in (("is_available", True), ("is_initialized", True), ("device_count", 1)):
        cuda.answer_others(torch.cuda, name, answer)
    cuda.answer_others(torch.backends.cuda, "is_built", answer=True)
    facts: dict[str, Any] = {
        "_is_in_bad_fork": False,
        "current_device": 0,
        "get_device_capability": target.capability,
        "get_device_properties": DeviceProperties.of(target),
        "get_device_name": target.device_name,
        "get_arch_list": [target.name],
        "get_gencode_flags": f"-gencode compute=compute_{target.arch},code={target.name}",
        "is_bf16_supported": True,
        "is_tf32_supported": True,
        "is_current_stream_capturing": False,
        "can_device_access_peer": False,
        "get_sync_debug_mode": 0,
        "get_allocator_backend": "native",
    }
    for name, answer in facts.items():
        cuda.answer(torch.cuda, name, answer)
    cuda.answer(torch.cuda, DO_NOTHING, None)
    cuda.answer(torch.cuda.nvtx, "range_push range_pop mark range_start range_end", 0)
    cuda.patches.replace(torch.cuda.nvtx, "range", _null_context)
    for name in ("use_mem_pool", "caching_allocator_disabled"):
        cuda.patches.replace_existing(torch.cuda, name, _null_context)


@contextmanager
def _null_context(*args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: ANN401, ARG001 - as torch's
    yield


def _patch_streams(cuda: _Cuda) -> None:
    event = make_streams(cuda.ledger)
    patches = cuda.patches
    current = StreamContext.current

    def set_stream(stream: Any) -> None:  # noqa: ANN401 - a stream or None
        current[-1] = stream or current[-1]

    def external(handle: int, device: Any = None, **kwargs: Any) -> Stream:  # noqa: ANN401, ARG001 - as torch's
        return Stream(handle=handle)

    def synchronize(device: Any = None) -> None:  # noqa: ANN401, ARG001 - as torch's
        cuda.ledger.answers["torch.cuda.synchronize"] += 1
        WORK.all_awaited()

    del current[1:]
    current[0] = DEFAULT_STREAM
    for owner in (torch.cuda, torch):
        patches.replace_existing(owner, "Stream", Stream)
        patches.replace_existing(owner, "Event", event)
    patches.replace(torch.cuda, "ExternalStream", external)
    patches.replace_existing(torch.cuda, "get_stream_from_external", external)
    patches.replace(torch.cuda, "synchronize", synchronize)
    patches.replace(torch.cuda, "stream", StreamContext)
    patches.replace_existing(torch.cuda, "StreamContext", StreamContext)
    patches.replace(torch.cuda, "set_stream", set_stream)
    patches.replace(torch.cuda, "current_stream", lambda device=None: current[-1])  # noqa: ARG005 - torch's name
    patches.replace(torch.cuda, "default_stream", lambda device=None: DEFAULT_STREAM)  # noqa: ARG005 - torch's name
    # torch's own accepts none but streams of its own making, before any mode is asked.
    patches.replace(torch.Tensor, "record_stream", _answering(cuda.ledger, "record_stream", None))
    patches.replace(torch.cuda, "device", DeviceGuard)
    patches.replace(torch.cuda, "device_of", DeviceGuard)


def _generator_class(ledger: Ledger) -> type:
    """Return the class that takes the place of `torch.Generator`: it remembers which device it was made for."""
    true_generator: Any = torch.Generator

    class _Meta(type(true_generator)):  # type: ignore[misc]  # a metaclass known at run time only
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, true_generator)

    class Generator(true_generator, metaclass=_Meta):  # type: ignore[misc]  # as its metaclass
        on_device = False

        def __new__(cls, device: Any = "cpu") -> Self:  # noqa: ANN401 - any device argument
            on_device = names_cuda(device)
            made: Self = super().__new__(cls, device="cpu" if on_device else device)
            made.on_device = on_device
            ledger.answers["torch.Generator"] += on_device
            return made

        @property
        def device(self) -> torch.device:
            """Return the device it was made for."""
            true: torch.device = CUDA_0 if self.on_device else super().device
            return true

    return Generator


def _patch_random(cuda: _Cuda) -> None:
    """Let one generator, the CPU's, stand for both: what the device draws comes from it."""
    patches = cuda.patches
    host = torch.default_generator

    def manual_seed(seed: int) -> None:
        host.manual_seed(int(seed))

    def seed() -> None:
        host.seed()

    def get_state(device: Any = None) -> torch.Tensor:  # noqa: ANN401, ARG001 - torch's signature
        return host.get_state()

    def set_state(state: torch.Tensor, device: Any = None) -> None:  # noqa: ANN401, ARG001 - torch's signature
        host.set_state(state)

    patches.replace(torch, "Generator", _generator_class(cuda.ledger))
    for owner in (torch.cuda, torch.cuda.random):
        for name in ("manual_seed", "manual_seed_all"):
            patches.replace(owner, name, manual_seed)
        for name in ("seed", "seed_all"):
            patches.replace(owner, name, seed)
        patches.replace(owner, "initial_seed", host.initial_seed)
        patches.replace(owner, "get_rng_state", get_state)
        patches.replace(owner, "set_rng_state", set_state)
        patches.replace(owner, "get_rng_state_all", lambda: [host.get_state()])
        patches.replace(owner, "set_rng_state_all", lambda states: host.set_state(states[0]))
    patches.replace_existing(torch.cuda, "default_generators", (host,))


def _patch_refusals(cuda: _Cuda) -> None:
    patches = cuda.patches
    cuda.refuse(torch.cuda, MEASUREMENTS, MEASUREMENT)
    cuda.refuse(torch.cuda.memory, MEASUREMENTS, MEASUREMENT)
    for name, reason in HARDWARE.items():
        cuda.refuse(torch.cuda, name, reason)
    for owner in (torch.cuda, torch.cuda.graphs):
        patches.replace(owner, "CUDAGraph", cuda.refusing_class("torch.cuda.CUDAGraph", GRAPHS))
        patches.replace(owner, "graph", cuda.refusing_class("torch.cuda.graph", GRAPHS))
        patches.replace(
            owner, "make_graphed_callables", cuda.refusing("torch.cuda.make_graphed_callables", GRAPHS)
        )
    patches.replace_existing(
        torch.cuda, "MemPool", cuda.refusing_class("torch.cuda.MemPool", "it is a pool of a GPU's memory")
    )
    cuda.refuse(torch.cuda.profiler, "start stop profile init cudart", MEASUREMENT)


def _patch_accelerator(cuda: _Cuda, target: Target) -> None:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    for name, answer in (("is_available", True), ("device_count", 1), ("current_accelerator", CUDA)):
        cuda.answer_others(accelerator, name, answer)
    cuda.answer(accelerator, "current_device_index current_device_idx", 0)
    cuda.answer(accelerator, "get_device_capability", {"capability": target.capability})
    cuda.answer(accelerator, ACCELERATOR_NOTHING, None)
    cuda.refuse(accelerator, ACCELERATOR_MEASUREMENTS, MEASUREMENT)
    cuda.patches.replace(accelerator, "current_stream", torch.cuda.current_stream)
    cuda.patches.replace_existing(accelerator, "set_stream", torch.cuda.set_stream)
    cuda.patches.replace_existing(accelerator, "synchronize", torch.cuda.synchronize)
    cuda.patches.replace_existing(accelerator, "device_index", DeviceGuard)


def _patch_default_device(cuda: _Cuda, mode: DeviceMode) -> None:
    """Keep the default device here: torch's own would push a mode below ours that names cuda to the CPU build."""
    patches = cuda.patches
    true_set, true_get = torch.set_default_device, torch.get_default_device
    true_set_type, parse = torch.set_default_tensor_type, getattr(PARSER_OF_TO, PARSE_TO)

    def set_default_device(device: Any) -> None:  # noqa: ANN401 - any device argument
        mode.default_place = device is not None and names_cuda(device)
        if mode.default_place:
            mode.ledger.answers["torch.set_default_device"] += 1
        mode.default_changed = True
        true_set(None if mode.default_place else device)

    def get_default_device() -> torch.device:
        return CUDA_0 if mode.default_place else true_get()

    def set_default_tensor_type(kind: Any) -> None:  # noqa: ANN401 - a tensor type or its name
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        if ".cuda." in name:
            set_default_device("cuda")
            true_set_type(name.replace(".cuda.", "."))
        else:
            true_set_type(kind)

    def parse_to(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the arguments of `Module.to`
        # A build without CUDA knows no device by its index.
        args = tuple(CUDA_0 if type(value) is int and names_cuda(value) else value for value in args)
        if type(kwargs.get("device")) is int and names_cuda(kwargs["device"]):
            kwargs = {**kwargs, "device": CUDA_0}
        device, *rest = parse(*args, **kwargs)
        if any(tag_of(tensor) for tensor in tensors_in((*args, *kwargs.values()), 0)):
            device = CUDA_0  # moved to where another tensor is
        return (device, *rest)

    patches.replace(torch, "set_default_device", set_default_device)
    patches.replace(torch, "get_default_device", get_default_device)
    patches.replace(torch, "set_default_tensor_type", set_default_tensor_type)
    patches.replace(PARSER_OF_TO, PARSE_TO, parse_to)
    # The mode is handed the function that stands under this name.
    mode.handlers[parse_to] = lambda func, args, kwargs: parse(*args, **kwargs)  # noqa: ARG005 - a handler


def _patch_loading(cuda: _Cuda) -> None:
    true_load, true_from_numpy = torch.load, torch.from_numpy

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as torch's
        to_device = names_cuda(map_location)
        loaded = true_load(f, "cpu" if to_device else map_location, *args, **kwargs)
        if map_location is not None:
            for tensor in tensors_in((loaded,), depth=8):
                retag(tensor, to_device)
        return loaded

    def from_numpy(array: Any) -> torch.Tensor:  # noqa: ANN401 - an array
        made = true_from_numpy(array)
        retag(made, False)
        return made

    cuda.patches.replace(torch, "load", load)
    cuda.patches.replace(torch, "from_numpy", from_numpy)
