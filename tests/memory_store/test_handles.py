import hashlib
import re

from adaexplore_mcp.memory_store import candidate_id_of, content_handle, new_handle


def test_handles_are_short_and_safe_to_copy():
    for prefix in ("job", "rcpt", "art", "out", "att"):
        assert re.fullmatch(rf"{prefix}_[a-z2-9]{{12}}", new_handle(prefix))


def test_random_handles_do_not_repeat():
    assert len({new_handle("job") for _ in range(2000)}) == 2000


def test_equal_content_has_an_equal_handle_and_other_content_another():
    assert candidate_id_of(b"\xff\x00") == candidate_id_of(b"\xff\x00") != candidate_id_of(b"\xff\x01")
    assert re.fullmatch(r"task_[a-z2-9]{12}", content_handle("task", hashlib.sha256(b"x").hexdigest()))
