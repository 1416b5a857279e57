"""The bench and the court: real workers that are shared by the tests of a module, and found unharmed after each."""

import pytest
from bench import CANARY, Bench
from court import Court


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def bench(tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ADAEXPLORE_TEST_SECRET", CANARY)
        bench = Bench(tmp_path_factory.mktemp("pool") / "scratch")
        await bench.start()
    yield bench
    await bench.close()


@pytest.fixture
async def harmless(bench):
    """Judge an honest candidate after a test, and count what is left."""
    yield
    await bench.honest()
    await bench.at_rest()


@pytest.fixture(scope="module")
async def court(tmp_path_factory):
    court = Court(tmp_path_factory.mktemp("evaluator") / "scratch")
    yield court
    await court.evaluator.aclose()
