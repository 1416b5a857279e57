"""Where tensors are said to be, and what happens when host and device meet. This file plays the candidate."""

import copy
import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import nn

from adaexplore_mcp.evaluation.workers.standin import DeviceMismatch, StandIn

CUDA = torch.device("cuda", 0)


@pytest.fixture(params=[False, True], ids=["real", "fake"])
def standin(request):
    with StandIn(own_paths=[__file__], fake=request.param) as standin:
        yield standin


@pytest.mark.parametrize(
    "device", ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda:0"), 0], ids=repr
)
def test_every_way_to_name_the_device_is_understood(standin, device):
    x = torch.ones(3)
    module = nn.Linear(2, 2)
    made = [
        torch.zeros(2, device=device),
        torch.rand((2, 2), device=device, dtype=torch.float16),
        torch.arange(4, device=device),
        torch.full((2,), 1.0, device=device),
        torch.tensor([1.0, 2.0], device=device),
        torch.as_tensor([1.0], device=device),
        torch.asarray([1.0], device=device),
        torch.eye(2, device=device),
        torch.empty_strided((2, 2), (1, 2), device=device),
        torch.zeros_like(x, device=device),
        torch.empty_like(x, device=device),
        x.new_zeros(2, device=device),
        x.new_tensor([1.0], device=device),
        x.to(device),
        x.to(device, torch.float16),
        x.to(device=device, dtype=torch.float16, non_blocking=True),
        x.cuda(device),
        module.to(device).weight,
        nn.Linear(2, 2).to(device=device, dtype=torch.float16).weight,
        nn.Linear(2, 2).cuda(device).bias,
        nn.Linear(2, 2, device=device).weight,
        nn.Parameter(torch.ones(2, device=device)),
    ]
    assert [tensor.device for tensor in made] == [CUDA] * len(made)
    assert all(tensor.is_cuda and not tensor.is_cpu and tensor.get_device() == 0 for tensor in made)
    assert not x.is_cuda
    assert x.device == torch.device("cpu")
    assert standin.answers["device argument"] >= len(made) - 6


def test_devices_can_be_named_by_index(standin):
    assert torch.device(0) == CUDA
    assert torch.device("cuda", 0) == CUDA
    assert torch.device("cpu").type == "cpu"


def test_a_second_device_does_not_exist(standin):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2, device="cuda:1")


def test_operations_views_and_in_place_operations_stay_on_the_device(standin):
    x = torch.ones(4, 4, device="cuda")
    y = torch.ones(4, 4)
    on_device = [
        x + 1,
        x @ x,
        x.T,
        x[0],
        x[:, None],
        x.view(16),
        *x.split(2),
        *torch.unbind(x),
        next(iter(x)),
        x.add_(1),
        torch.cat([x, x]),
        torch.stack((x, x)),
        torch.einsum("ij,jk->ik", x, x),
        x.max(dim=0).indices,
        x.detach(),
        x.data,
        F.layer_norm(x, (4,)),
        x.new_empty(3),
        torch.empty_like(x),
        x.sum(),
        x.type_as(torch.ones(1, dtype=torch.float16, device="cuda")),
        y.type_as(x),
        y.to(x),
        torch.where(x > 0, x, 0.0),
        copy.deepcopy(x),
    ]
    assert [tensor.is_cuda for tensor in on_device] == [True] * len(on_device)
    in_host = [y + 1, y.T, torch.cat([y, y]), x.cpu(), x.to("cpu"), y.new_empty(2), torch.empty_like(y)]
    assert [tensor.is_cuda for tensor in in_host] == [False] * len(in_host)


def test_a_move_makes_a_copy_and_staying_does_not(standin):
    host = torch.ones(4)
    device = host.cuda()
    assert device is not host
    assert device.cuda() is device
    assert device.to("cuda") is device
    assert host.to("cpu") is host
    assert device.cpu() is not device


def test_a_copy_on_the_device_does_not_follow_the_host():
    with StandIn(own_paths=[__file__]):
        host = torch.ones(4)
        device = host.to("cuda")
        host.zero_()
        assert device.tolist() == [1.0] * 4
        array = np.ones(3, dtype=np.float32)
        device = torch.as_tensor(array, device="cuda")
        array[:] = 0
        assert device.tolist() == [1.0] * 3


def test_modules_carry_their_parameters_and_buffers(standin):
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    tied = nn.Linear(4, 4)
    tied.weight = module[0].weight
    holder = nn.ModuleList([module, tied])
    assert not module[0].weight.is_cuda
    holder.cuda()
    assert module[0].weight.is_cuda
    assert module[1].running_mean.is_cuda
    assert tied.weight is module[0].weight
    holder.half()
    assert module[0].weight.dtype is torch.float16
    assert module[0].weight.is_cuda
    assert tied.weight is module[0].weight
    assert isinstance(module[0].weight, nn.Parameter)
    holder.to(torch.float32)
    module(torch.ones(2, 4, device="cuda"))
    assert copy.deepcopy(module)[0].weight.is_cuda
    holder.cpu()
    assert not module[1].running_mean.is_cuda
    module.to(torch.ones(1, device="cuda"))
    assert module[0].weight.is_cuda


def test_a_state_dict_loads_without_moving_anything(standin):
    source, target = nn.Linear(3, 3), nn.Linear(3, 3).cuda()
    target.load_state_dict(source.state_dict())
    assert target.weight.is_cuda
    target.load_state_dict({name: value.cuda() for name, value in source.state_dict().items()}, assign=True)
    assert target.weight.is_cuda
    assert not source.weight.is_cuda


def test_buffers_and_parameters_made_from_device_tensors_are_there(standin):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, device="cuda"))
            self.register_buffer("scale", torch.ones(2, device="cuda"))

    holder = Holder()
    assert holder.weight.is_cuda
    assert holder.scale.is_cuda
    holder.weight.data = torch.ones(3)
    assert not holder.weight.is_cuda


def test_the_default_device_can_be_the_gpu(standin):
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda
    assert not torch.ones(2).is_cuda
    torch.set_default_device("cuda")
    assert torch.get_default_device() == CUDA
    assert torch.ones(2).is_cuda
    assert nn.Linear(2, 2).bias.is_cuda
    torch.set_default_device("cpu")
    assert not torch.ones(2).is_cuda
    torch.set_default_device(None)


def test_a_generator_remembers_its_device(standin):
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device == CUDA
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert torch.randn(2, generator=generator, device="cuda").is_cuda
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.randn(2, generator=generator)


def test_host_and_device_tensors_do_not_mix(standin):
    device, host = torch.ones(4, 4, device="cuda"), torch.ones(4, 4)
    for mix in (
        lambda: device + host,
        lambda: host @ device,
        lambda: torch.cat([device, host]),
        lambda: F.linear(device, host),
        lambda: device.add_(host),
        lambda: nn.Linear(4, 4)(device),
        lambda: nn.Linear(4, 4).cuda()(host),
        lambda: torch.where(device > 0, device, host),
        lambda: nn.LSTM(4, 4)(device),
    ):
        with pytest.raises(DeviceMismatch, match="Expected all tensors to be on the same device"):
            mix()
    assert issubclass(DeviceMismatch, RuntimeError)
    assert standin.answers["device mismatch"] == 9


def test_scalars_and_indices_in_host_memory_may_meet_the_device(standin):
    device = torch.ones(4, 4, device="cuda")
    scalar, index = torch.tensor(2.0), torch.tensor([0, 1])
    assert (device * scalar).is_cuda
    assert (scalar * device).is_cuda
    assert device[index].is_cuda
    device[index] = 0
    device[0] = torch.ones(4)
    device.index_put_((index,), torch.ones(2, 4, device="cuda"))
    device.copy_(torch.ones(4, 4))
    with pytest.raises(DeviceMismatch, match="indices should be either on cpu"):
        torch.ones(4)[index.cuda()]
    with pytest.raises(DeviceMismatch):
        device.index_put_((index,), torch.ones(2, 4))


def test_layers_whose_python_code_makes_tensors_of_its_own_work(standin):
    x = torch.ones(2, 3, 4, device="cuda")
    assert nn.LSTM(4, 5, num_layers=2).cuda()(x)[0].is_cuda
    assert nn.GRU(4, 5, batch_first=True, bidirectional=True).cuda()(x)[0].shape == (2, 3, 10)
    assert nn.MultiheadAttention(4, 2).cuda()(x, x, x)[0].is_cuda
    mask = nn.Transformer.generate_square_subsequent_mask(3, device="cuda")
    assert F.scaled_dot_product_attention(x, x, x, attn_mask=mask).is_cuda
    assert nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).cuda().eval()(x).is_cuda
    assert nn.Embedding(5, 4).cuda()(torch.zeros(2, dtype=torch.long, device="cuda")).is_cuda


def test_only_the_code_under_test_is_told_of_the_device(standin):
    x = torch.ones(2, device="cuda")
    namespace = {}
    exec(
        compile("def ask(x): return x.is_cuda, x.device.type, x.get_device()", "/elsewhere.py", "exec"),
        namespace,
    )
    assert namespace["ask"](x) == (False, "cpu", -1)
    assert eval("x.is_cuda")  # code without a file of its own belongs to this one


def test_inputs_and_modules_are_placed_without_moving_their_memory():
    inputs = {"x": torch.ones(2), "more": [torch.ones(1), 3]}
    module = nn.BatchNorm1d(2)
    assert StandIn.place(inputs) is inputs
    assert StandIn.place(module) is module
    with StandIn(own_paths=[__file__]) as standin:
        assert inputs["x"].is_cuda
        assert inputs["more"][0].is_cuda
        assert module.running_var.is_cuda
        assert standin.on_device(module.weight)
        assert not standin.on_device(torch.ones(1))


def test_a_device_tensor_is_not_an_array():
    with StandIn(own_paths=[__file__]):
        x = torch.ones(2, device="cuda")
        for convert in (x.numpy, lambda: np.asarray(x)):
            with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
                convert()
        assert x.cpu().numpy().tolist() == [1.0, 1.0]
        assert torch.from_numpy(np.ones(2)).is_cuda is False


def test_legacy_tensor_types_are_constructors_types_and_names(standin):
    x = torch.cuda.FloatTensor(3)
    assert x.is_cuda
    assert x.dtype is torch.float32
    assert torch.cuda.LongTensor([1, 2]).dtype is torch.int64
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.HalfTensor)
    assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)
    assert x.type() == "torch.cuda.FloatTensor"
    assert torch.ones(1).type("torch.cuda.HalfTensor").is_cuda
    assert torch.ones(1).type(torch.cuda.HalfTensor).dtype is torch.float16
    assert not x.type("torch.FloatTensor").is_cuda


@pytest.mark.parametrize("name", ["FloatTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "BoolTensor"])
def test_legacy_tensor_types_tell_sizes_from_data(standin, name):
    kind = getattr(torch.cuda, name)
    shape = torch.ones(2, 3).shape
    made = [
        kind(shape),
        kind(2, 3),
        kind(np.int64(2), np.int64(3)),
        kind(size=(2, 3)),
        kind(shape, device="cuda"),
    ]
    assert [(each.shape, each.device) for each in made] == [(shape, CUDA)] * len(made)
    assert kind(torch.Size([])).shape == ()
    assert kind().shape == (0,)
    data = [kind((1, 0)), kind([1, 0]), kind(np.array([1, 0])), kind(kind([1, 0]))]
    assert [(each.shape, each.device) for each in data] == [((2,), CUDA)] * len(data)
    assert standin.fake or all(each.tolist() == [1, 0] for each in data)
    with pytest.raises(TypeError, match=f"expected a tensor of type torch.cuda.{name}"):
        kind(torch.ones(2, dtype=torch.int32))


def test_new_takes_a_size_as_it_takes_integers(standin):
    x = torch.ones(2, 3, device="cuda")
    for made in (x.new(x.shape), x.new(2, 3), x.new(x.size())):
        assert (made.shape, made.device) == (x.shape, CUDA)
        assert standin.fake or made.isnan().all()
    assert standin.fake or x.new((2, 3)).tolist() == [2.0, 3.0]


def test_pinning_and_streams_of_tensors_are_accepted(standin):
    pinned = torch.ones(2).pin_memory()
    assert not pinned.is_cuda
    assert torch.ones(2, pin_memory=True).sum() == 2 or standin.fake
    pinned.to("cuda", non_blocking=True).record_stream(torch.cuda.current_stream())
    assert standin.answers["pin_memory"] == 1
    assert standin.answers["record_stream"] == 1


def test_checkpoints_are_loaded_to_the_device():
    with StandIn(own_paths=[__file__]):
        file = io.BytesIO()
        torch.save({"w": torch.ones(2, device="cuda")}, file)
        file.seek(0)
        assert torch.load(file, map_location="cuda")["w"].is_cuda
        file.seek(0)
        assert not torch.load(file, map_location="cpu")["w"].is_cuda


def test_gradients_and_custom_functions_stay_on_the_device():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    with StandIn(own_paths=[__file__]):
        x = torch.ones(2, device="cuda", requires_grad=True)
        y = Double.apply(x)
        assert y.is_cuda
        y.sum().backward()
        assert x.grad.is_cuda
        assert x.grad.tolist() == [2.0, 2.0]
