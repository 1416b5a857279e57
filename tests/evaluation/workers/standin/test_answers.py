"""What `torch.cuda` and its surroundings answer, and what they refuse. This file plays the candidate."""

import importlib
import importlib.util
import sys

import pytest
import torch

from adaexplore_mcp.evaluation.workers.standin import NotHere, Refusal, StandIn, warm_up
from adaexplore_mcp.evaluation.workers.targets import TARGETS, target


@pytest.fixture
def standin():
    with StandIn(target("sm_86"), own_paths=[__file__]) as standin:
        yield standin


@pytest.mark.parametrize("name", TARGETS)
def test_the_device_has_the_properties_of_the_target(name):
    with StandIn(target(name), own_paths=[__file__]):
        properties = torch.cuda.get_device_properties(0)
        assert (
            (properties.major, properties.minor)
            == torch.cuda.get_device_capability()
            == target(name).capability
        )
        assert properties.multi_processor_count == target(name).multiprocessors
        assert properties.shared_memory_per_block_optin == target(name).shared_bytes_per_block_optin
        assert "stand-in" in torch.cuda.get_device_name("cuda:0")


def test_there_is_one_device(standin):
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.is_initialized()
    assert torch.cuda.is_bf16_supported()
    torch.cuda.set_device("cuda:0")
    if hasattr(torch, "accelerator"):
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        torch.accelerator.synchronize()
    assert standin.answers["torch.cuda.is_available"] == 1


def _on_a_side_stream(standin):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        standin.launched("kernel")
        event = side.record_event()
    return side, event


@pytest.mark.parametrize(
    "join",
    [
        lambda side, event: torch.cuda.current_stream().wait_stream(side),
        lambda side, event: torch.cuda.current_stream().wait_event(event),
        lambda side, event: event.wait(),
        lambda side, event: event.synchronize(),
        lambda side, event: side.synchronize(),
        lambda side, event: torch.cuda.synchronize(),
        lambda side, event: torch.accelerator.synchronize(),
        lambda side, event: torch.cuda.set_stream(side),
        lambda side, event: _by_another(side),
    ],
)
def test_a_stream_that_is_waited_for_is_no_matter(standin, join):
    join(*_on_a_side_stream(standin))
    standin.launched("another")
    standin.returned()
    assert standin.notes == []


def _by_another(side):
    other = torch.cuda.Stream()
    other.wait_stream(side)
    torch.cuda.default_stream().wait_stream(other)


@pytest.mark.parametrize(
    "join",
    [
        lambda side, event: None,
        lambda side, event: side.wait_stream(torch.cuda.current_stream()),
        lambda side, event: torch.cuda.Stream().wait_stream(side),
        lambda side, event: torch.cuda.current_stream().wait_stream(torch.cuda.Stream()),
    ],
)
def test_a_launch_on_a_stream_that_nothing_waits_for_is_noted(standin, join):
    join(*_on_a_side_stream(standin))
    standin.returned()
    (note,) = standin.notes
    assert note.startswith("It launches kernel on a stream of its own")


def test_a_launch_after_the_event_that_is_waited_for_is_noted(standin):
    side, event = _on_a_side_stream(standin)
    with torch.cuda.stream(side):
        standin.launched("later")
    event.synchronize()
    standin.returned()
    (note,) = standin.notes
    assert "It launches later on" in note


def test_streams_events_and_device_guards_keep_order_and_do_nothing_else(standin):
    stream, other = torch.cuda.Stream(), torch.cuda.Stream(device="cuda", priority=-1)
    assert stream != other
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream().cuda_stream == 0
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    stream.wait_event(event)
    stream.wait_stream(other)
    stream.synchronize()
    assert event.query()
    assert stream.record_event() is not None
    with torch.cuda.device(0), torch.cuda.device_of(torch.ones(1, device="cuda")):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    torch.cuda.nvtx.range_push("here")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("there"):
        pass
    assert standin.refused == []


def test_seeding_the_device_makes_its_numbers_repeat(standin):
    torch.cuda.manual_seed(5)
    first = torch.randn(3, device="cuda")
    torch.cuda.manual_seed_all(5)
    assert torch.equal(first, torch.randn(3, device="cuda"))
    torch.manual_seed(5)
    state = torch.cuda.get_rng_state()
    second = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(second, torch.randn(3, device="cuda"))


MEASUREMENTS = {
    "torch.cuda.memory_allocated": "torch.cuda.memory_allocated()",
    "torch.cuda.max_memory_allocated": "torch.cuda.max_memory_allocated(0)",
    "torch.cuda.mem_get_info": "torch.cuda.mem_get_info()",
    "torch.cuda.memory_stats": "torch.cuda.memory_stats()",
    "torch.cuda.utilization": "torch.cuda.utilization()",
    "torch.cuda.Event.elapsed_time": "torch.cuda.Event().elapsed_time(torch.cuda.Event())",
    "torch.cuda.CUDAGraph": "torch.cuda.CUDAGraph()",
    "torch.cuda.graph": "torch.cuda.graph(None)",
    "torch.cuda.make_graphed_callables": "torch.cuda.make_graphed_callables(len, ())",
    "torch.cuda.profiler.start": "torch.cuda.profiler.start()",
    "torch.cuda.cudart": "torch.cuda.cudart()",
    "Tensor.__cuda_array_interface__": "torch.ones(1, device='cuda').__cuda_array_interface__",
}


@pytest.mark.parametrize("what", MEASUREMENTS)
def test_a_measurement_is_refused_and_remembered_even_if_the_code_swallows_it(standin, what):
    with pytest.raises(NotHere, match=f"^{what} is not available without a GPU: "):
        eval(MEASUREMENTS[what])
    with pytest.raises(NotHere):
        eval(MEASUREMENTS[what])
    assert [refusal.what for refusal in standin.refused] == [what]


def test_cuda_extensions_are_refused_when_they_are_built_not_when_they_are_imported(standin):
    from torch.utils.cpp_extension import load, load_inline

    for build in (load, load_inline):
        with pytest.raises(NotHere, match="CUDA C\\+\\+ needs a GPU and nvcc"):
            build(name="x", cuda_sources="", sources=[])
    assert standin.refused[0] == Refusal("torch.utils.cpp_extension.load", "CUDA C++ needs a GPU and nvcc")


def test_torch_compile_is_the_function_itself_in_every_form(standin):
    def double(x):
        return x * 2

    @torch.compile
    def bare(x):
        return x * 2

    @torch.compile(mode="max-autotune", fullgraph=True, dynamic=False)
    def with_options(x):
        return x * 2

    module = torch.nn.Linear(2, 2)
    assert torch.compile(double, backend="inductor") is double
    assert torch.compile(module) is module
    module.compile()
    assert bare(3) == with_options(3) == 6
    assert module.cuda()(torch.ones(1, 2, device="cuda")).is_cuda
    assert torch.compiler.disable(double) is double
    assert standin.answers["torch.compile"] == 5
    assert standin.notes == ["torch.compile was replaced by the plain function"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_torchscript_is_left_alone_and_its_results_are_on_the_device(standin, tmp_path):
    path = tmp_path / "scripted.py"
    path.write_text("def add(x, y):\n    return x + y\n")
    spec = importlib.util.spec_from_file_location("scripted", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scripted = torch.jit.script(module.add)
    x = torch.ones(2, device="cuda")
    assert scripted(x, x).is_cuda
    assert torch.jit.trace(torch.nn.Linear(2, 2).cuda(), (x,))(x).is_cuda
    assert not scripted(torch.ones(2), torch.ones(2)).is_cuda


def test_leaving_restores_every_attribute_and_setting():
    warm_up()  # the first fake tensor of a process imports torch's compiler, which adds attributes to torch
    owners = [torch, torch.cuda, torch.cuda.random, torch.cuda.memory, torch.cuda.nvtx, torch.cuda.graphs]
    owners += [
        torch.nn.Module,
        torch.nn.Parameter,
        torch.amp.autocast_mode.autocast,
        torch._C._nn,
        torch.compiler,
    ]
    owners += [torch._subclasses.fake_tensor.FakeTensor, torch.utils, torch.Tensor, torch._C.ScriptFunction]
    owners += [getattr(torch, "accelerator", torch)]
    interface = sys.modules["torch._dynamo.device_interface"].CudaInterface
    owners += [
        torch._C,
        torch._C._dynamo.guards,
        torch.version,
        torch.backends.cuda,
        interface,
        interface.Worker,
    ]

    def snapshot():
        return {(owner.__name__, name): value for owner in owners for name, value in vars(owner).items()}

    torch.backends.cudnn.allow_tf32 = True
    before, modules = snapshot(), set(sys.modules)
    for fake in (False, True):
        with StandIn(fake=fake):
            torch.set_default_device("cuda")
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
            importlib.import_module("torch.utils.cpp_extension")
    after = snapshot()
    assert {key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)} == set()
    assert "torch.utils.cpp_extension" in modules or "torch.utils.cpp_extension" not in sys.modules
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.ones(1).device.type == "cpu"


def test_everything_is_restored_when_the_code_inside_fails():
    available = torch.cuda.is_available
    with pytest.raises(ZeroDivisionError), StandIn():
        _ = 1 / 0
    assert torch.cuda.is_available is available
    with StandIn():
        pass


def test_a_second_stand_in_at_the_same_time_is_refused():
    with StandIn(), pytest.raises(RuntimeError, match="active already"), StandIn():
        pass
    with StandIn():
        pass
