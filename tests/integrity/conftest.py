"""Two courts, one on the CPU and one on the GPUs of this machine; shared by all, since workers take seconds to start."""

import pytest
from attacks import GpuCourt
from court import Court


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
async def court(tmp_path_factory):
    court = Court(tmp_path_factory.mktemp("court") / "scratch")
    yield court
    await court.evaluator.aclose()


@pytest.fixture(scope="session")
async def gpu_court(tmp_path_factory):
    court = GpuCourt(tmp_path_factory.mktemp("gpu"))
    yield court
    await court.evaluator.aclose()
