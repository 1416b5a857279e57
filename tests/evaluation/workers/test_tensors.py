import os

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from adaexplore_mcp.evaluation.workers.spaces import file_bytes
from adaexplore_mcp.evaluation.workers.tensors import (
    NotTransportableError,
    decode,
    decode_outline,
    encode,
    outline,
    read_contiguous,
    write_contiguous,
)


def through(value, **options):
    encoded = encode(value)
    try:
        return decode(encoded.message(), None if encoded.file < 0 else encoded.file, **options)
    finally:
        if encoded.file >= 0:
            os.close(encoded.file)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        1 << 80,
        0.1,
        float("inf"),
        complex(1, float("inf")),
        "text \udce9",
        b"\x00\xff",
        torch.bfloat16,
        torch.device("cuda", 0),
        torch.Size([2, 3]),
        slice(1, None, 2),
        range(3, 9, 2),
        [1, (2, [3]), {"a": (), 4: None, None: 5.0}],
    ],
)
def test_plain_values_arrive_as_they_were(value):
    arrived = through(value)
    assert arrived == value
    assert type(arrived) is type(value)


def test_nan_arrives_as_nan():
    assert through(float("nan")) != through(float("nan"))


@pytest.mark.parametrize(
    "dtype",
    [
        *(
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
        ),
        *(
            torch.complex64,
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.uint16,
        ),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3)])
def test_tensors_of_every_dtype_and_shape_arrive_bit_by_bit(dtype, shape):
    raw = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8)
    tensor = (raw[..., 0] % 2 == 0) if dtype is torch.bool else raw.view(dtype).reshape(shape)
    arrived = through([tensor])[0]
    assert arrived.dtype == dtype
    assert arrived.shape == tensor.shape
    assert torch.equal(arrived.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_a_window_of_a_wider_buffer_stays_one():
    base = torch.randn(28, 17)
    window = base[2:27, 1:13].t()
    arrived = through({"x": window})["x"]
    assert arrived.stride() == window.stride()
    assert arrived.storage_offset() == window.storage_offset()
    assert torch.equal(arrived, window)
    around = torch.as_strided(arrived, base.shape, base.stride(), 0)
    assert torch.equal(around, base), "what lies around the window came along"


def test_two_views_of_one_storage_still_share_it():
    base = torch.randn(10)
    first, second = through((base[:6], base[4:]))
    first[5] = 99.0
    assert second[1] == 99.0


def test_a_shared_map_lets_the_sender_see_what_the_receiver_wrote():
    encoded = encode(torch.zeros(4))
    receiver = decode(encoded.message(), encoded.file, shared=True)
    receiver[2] = 5.0
    assert decode(encoded.message(), encoded.file)[2] == 5.0
    private = decode(encoded.message(), encoded.file)
    private[0] = 1.0
    assert receiver[0] == 0.0
    os.close(encoded.file)


def test_a_lazily_committed_storage_is_not_filled():
    storage = torch.empty(3 << 30, dtype=torch.int8)
    view = storage.as_strided((4, 64), (1 << 29, 1))
    view.copy_(torch.arange(256).reshape(4, 64) % 100)
    encoded = encode(view)
    assert os.fstat(encoded.file).st_blocks * 512 < 4 << 20
    assert torch.equal(decode(encoded.message(), encoded.file), view)
    os.close(encoded.file)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"x": object()}, r"\['x'\] is an object"),
        ([torch.eye(2).to_sparse()], r"\[0\] is a tensor of layout torch.sparse"),
    ],
)
def test_what_cannot_travel_is_named(value, what):
    with pytest.raises(NotTransportableError, match=what):
        encode(value)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["table"][0].update(offset=1 << 40),
        lambda m: m["table"][0].update(shape=[1 << 40]),
        lambda m: m["table"][0].update(stride=[-1]),
        lambda m: m["storages"].__setitem__(0, (0, 1 << 40)),
        lambda m: m["storages"].__setitem__(0, (-8, 16)),
    ],
)
def test_a_message_that_does_not_describe_its_file_is_refused(change):
    encoded = encode(torch.ones(4))
    message = encoded.message()
    change(message)
    with pytest.raises(ValueError, match="storage"):
        decode(message, encoded.file)
    os.close(encoded.file)


def test_an_outline_makes_fake_tensors_of_the_same_form():
    value = {"args": (torch.empty(9, 3)[:5].t(), 3), "kwargs": {}}
    message = outline(value)
    with FakeTensorMode(allow_non_fake_inputs=True):
        arrived = decode_outline(message)
    tensor = arrived["args"][0]
    assert (tensor.shape, tensor.stride(), tensor.dtype) == ((3, 5), (1, 3), torch.float32)
    assert arrived["args"][1] == 3


def test_contiguous_files_hold_row_major_bytes_and_can_be_sealed():
    from adaexplore_mcp.evaluation.memfiles import seal

    tensors = [
        torch.randn(3, 4).t(),
        torch.tensor(True),
        torch.empty(0),
        torch.randn(2, dtype=torch.complex64).conj(),
    ]
    file = file_bytes(0)
    starts = write_contiguous(tensors, file)
    assert seal(file)
    entries = [
        {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "start": start}
        for t, start in zip(tensors, starts, strict=True)
    ]
    for sent, got in zip(tensors, read_contiguous(file, entries), strict=True):
        assert torch.equal(sent, got)
    with pytest.raises(ValueError, match="outside"):
        read_contiguous(file, [{"dtype": "float32", "shape": [1 << 30], "start": 0}])
    os.close(file)
