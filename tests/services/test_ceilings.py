"""What GPUs can do is measured once, and kept for every server on the store."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest

from adaexplore_mcp.evaluation.timing.clock import Ceilings
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.services.evaluation import EvaluationService

pytestmark = pytest.mark.anyio

FIRST, SECOND = Ceilings(4e12, {"fp32": 5e13}, 37.0, 1.3), Ceilings(2e12, {}, 50.0, 1.1)


async def server(store, driver="580"):
    async def workers():
        return SimpleNamespace(versions={"torch": "2.11.0"})

    devices = SimpleNamespace(gpus=[SimpleNamespace(driver=driver)])
    evaluator = SimpleNamespace(known_ceilings={}, pool=SimpleNamespace(workers=workers), devices=devices)
    return EvaluationService(None, store, None, evaluator, None), evaluator.known_ceilings


async def test_what_an_older_version_measured_less_of_is_measured_anew(tmp_path):
    store = Store(tmp_path / "a.db")
    one, known = await server(store)
    less = {name: value for name, value in asdict(FIRST).items() if name != "pair_us"}
    await store.ceilings.put("GPU-0", await one._software(), less)
    async with one._ceilings_kept():
        assert not known
        known["GPU-0"] = FIRST
    other, known = await server(store)
    async with other._ceilings_kept():
        assert known == {"GPU-0": FIRST}
    await store.aclose()


async def test_what_one_server_measured_another_knows(tmp_path):
    store = Store(tmp_path / "a.db")
    one, known = await server(store)
    async with one._ceilings_kept():
        assert not known
        known["GPU-0"] = FIRST
    other, known = await server(store)
    async with other._ceilings_kept():
        assert known == {"GPU-0": FIRST}
        known["GPU-1"] = SECOND
    last, known = await server(store)
    async with last._ceilings_kept():
        assert known == {"GPU-0": FIRST, "GPU-1": SECOND}
    await store.aclose()


async def test_with_another_driver_it_is_measured_anew(tmp_path):
    store = Store(tmp_path / "a.db")
    one, known = await server(store)
    async with one._ceilings_kept():
        known["GPU-0"] = FIRST
    other, known = await server(store, driver="590")
    async with other._ceilings_kept():
        assert not known
    await store.aclose()
