import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.wire import HEADER, Connection, FrameError, FrameReader, encode_frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.text(), JSON), max_size=4), st.integers(1, 50))
def test_messages_arrive_whole_however_the_bytes_are_cut(messages, size):
    data = b"".join(encode_frame(message) for message in messages)
    reader, received = FrameReader(), []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (taken := reader.take()) is not None:
            received.append(taken[0])
    assert received == messages


def test_descriptors_arrive_with_the_message_that_announces_them():
    ours, theirs = (Connection(each) for each in socket.socketpair())
    read_end, write_end = os.pipe()
    ours.send({"first": 1})
    ours.send({"second": 2}, [write_end])
    assert theirs.receive() == ({"first": 1}, [])
    message, (descriptor,) = theirs.receive()
    assert message == {"second": 2}
    os.write(descriptor, b"through")
    assert os.read(read_end, 100) == b"through"
    for each in (read_end, write_end, descriptor):
        os.close(each)
    ours.close()
    assert theirs.receive() is None
    theirs.close()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (HEADER.pack(3, 0) + b"{]}", "not a JSON"),
        (HEADER.pack(2, 0) + b"[]", "JSON object"),
        (HEADER.pack(8, 0) + b'{"a":NaN', "JSON"),
        (HEADER.pack(1 << 30, 0), "exceeds the limit"),
        (HEADER.pack(2, 9) + b"{}", "exceeds the limit"),
        (HEADER.pack(2, 1) + b"{}", "fewer descriptors"),
        (HEADER.pack(200_000, 0) + b'{"a":' + b"[" * 99_997 + b"]" * 99_997 + b"}", "JSON"),
    ],
)
def test_what_is_no_frame_is_refused(data, says):
    reader = FrameReader()
    reader.feed(data)
    with pytest.raises(FrameError, match=says):
        reader.take()


def test_a_reader_closes_the_descriptors_nobody_claimed():
    read_end, write_end = os.pipe()
    reader = FrameReader()
    reader.feed(b"", [read_end])
    reader.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read_end)
    os.close(write_end)


@pytest.mark.parametrize("message", [{"a": float("nan")}, {"a": {1, 2}}, {"a": "x" * (17 << 20)}])
def test_what_cannot_travel_is_refused_before_it_is_sent(message):
    with pytest.raises(FrameError):
        encode_frame(message)


def test_lone_surrogates_survive():
    reader = FrameReader()
    reader.feed(encode_frame({"source": "\udce9"}))
    assert reader.take() == ({"source": "\udce9"}, [])
    assert json.dumps("\udce9")
