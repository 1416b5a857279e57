"""What all tests share.

`pytest --update-snapshots` writes the files in tests/snapshots anew; look at the difference before you commit it.
"""

import os
import sys
from pathlib import Path

import hypothesis
import pytest

# Neither how fast this machine is nor what an earlier run left on disk decides a test.
hypothesis.settings.register_profile(
    "any machine", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# What a GPU decides is tested in test_gpu.py; everything else is the same on every machine.
os.environ["ADAEXPLORE_DEVICES"] = "none"

# Stand-ins for whole domains; a folder on the path because the test folders are not packages.
sys.path.insert(0, str(Path(__file__).parent / "support"))


def pytest_addoption(parser):
    parser.addoption("--update-snapshots", action="store_true", help="write tests/snapshots anew")


def pytest_collection_modifyitems(items):
    """With several processes each file is one's, and the GPU is one's too."""
    for item in items:
        group = "gpu" if item.get_closest_marker("gpu") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def update_snapshots(request):
    return request.config.getoption("--update-snapshots")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def settings(home, tmp_path):
    from adaexplore_mcp.settings import load_settings

    root = tmp_path / "work"
    root.mkdir()
    return load_settings(
        {"home": home, "scratch": tmp_path / "scratch", "roots": [root], "parallel": 2, "devices": ["none"]},
        {},
    )
