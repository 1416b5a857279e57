"""What a build of torch with CUDA has outside `torch.cuda`'s public names. This file plays the candidate."""

import pytest
import torch

from adaexplore_mcp.evaluation.workers.standin import StandIn, warm_up
from adaexplore_mcp.evaluation.workers.targets import TARGETS, target


@pytest.fixture(params=[False, True], ids=["real", "fake"])
def standin(request):
    warm_up()
    with StandIn(own_paths=[__file__], fake=request.param) as standin:
        yield standin


def test_the_raw_stream_is_that_of_the_current_stream(standin):
    from torch._C import _cuda_getCurrentRawStream as get_raw_stream

    side = torch.cuda.Stream()
    assert get_raw_stream(0) == torch.cuda.current_stream().cuda_stream == 0
    with torch.cuda.stream(side):
        assert get_raw_stream(0) == side.cuda_stream
        assert torch._C._cuda_getCurrentStream(0) == (side.stream_id, 0, 1)
    assert torch._C._cuda_getDefaultStream(0) == (0, 0, 1)
    torch._C._cuda_setStream(stream_id=side.stream_id, device_index=0, device_type=1)
    assert torch.cuda.current_stream() == side


def test_a_launch_on_a_stream_set_by_its_number_is_joined_like_any_other(standin):
    side = torch.cuda.Stream()
    torch._C._cuda_setStream(side.stream_id, 0, 1)
    standin.launched("kernel")
    torch.cuda.set_stream(torch.cuda.default_stream())
    torch._C._cuda_synchronize()
    standin.returned()
    assert standin.notes == []


def test_there_is_one_device_to_change_to(standin):
    with torch.cuda._DeviceGuard(0), torch.cuda._DeviceGuard(torch.device("cuda").index):
        torch._C._cuda_setDevice(0)
        assert torch._C._cuda_getDevice() == 0
    before = torch.cuda._exchange_device(0)
    assert before == torch.cuda._maybe_exchange_device(before) == 0
    assert torch._C._cuda_exchangeDevice(0) == torch._C._cuda_maybeExchangeDevice(0) == 0


def test_memory_allocated_by_sizes_and_strides_is_the_devices_and_fresh(standin):
    made = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (1, 2), torch.float16)
    assert (made.device, tuple(made.shape), made.stride()) == (torch.device("cuda", 0), (2, 3), (1, 2))
    assert made.dtype is torch.float16
    view = torch._C._dynamo.guards._reinterpret_tensor(made, (3,), (2,), 1)
    assert view.is_cuda
    assert torch.ops.inductor._reinterpret_tensor(made, (3,), (2,), 1).is_cuda
    if not standin.fake:
        assert made.isnan().all()
        assert view.data_ptr() == made.data_ptr() + made.element_size()


def test_the_interface_for_cuda_is_that_of_the_device(standin):
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("cuda")
    with interface.device(0), interface.stream(interface.Stream()):
        assert interface.get_raw_stream(0) == torch.cuda.current_stream().cuda_stream > 0
    assert interface.is_available()
    assert interface.device_count() == 1
    assert interface.get_compute_capability() == 90
    assert interface.Worker.get_device_properties(0) == torch.cuda.get_device_properties(0)
    assert interface.exchange_device(0) == interface.maybe_exchange_device(0) == interface.current_device()
    interface.synchronize()


def test_torch_is_built_with_cuda(standin):
    assert tuple(map(int, torch.version.cuda.split("."))) >= (12, 0)
    assert torch.backends.cuda.is_built()


@pytest.mark.parametrize("name", TARGETS)
def test_a_device_is_told_apart_and_has_clocks(name):
    with StandIn(target(name), own_paths=[__file__]):
        properties = torch.cuda.get_device_properties(0)
    assert len(properties.uuid.bytes) == 16
    assert properties.clock_rate > 1e6
    assert properties.memory_clock_rate * properties.memory_bus_width > 1e9
