import itertools
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples"))
try:
    import penstock  # noqa: F401  (installed, or given by PYTHONPATH)
except ModuleNotFoundError:
    sys.path.insert(0, str(HERE.parent / "src"))

import demo_services  # noqa: E402


@pytest.fixture(scope="session")
def pair():
    """Two services that are never harmed; tests use names of their own (fixture `name`)."""
    try:
        demo_services.binary()
    except demo_services.NoBinary as problem:
        pytest.skip(str(problem))
    with demo_services.Services("a", "b") as services:
        services.connect_all("a", "b")
        yield services


@pytest.fixture
def services():
    """Starts clusters that a test may harm."""
    try:
        demo_services.binary()
    except demo_services.NoBinary as problem:
        pytest.skip(str(problem))
    started = []

    def start(*names, **arguments):
        started.append(demo_services.Services(*names, **arguments))
        started[-1].connect_all(*names)
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def a(pair):
    with pair.client("a") as client:
        yield client


@pytest.fixture
def b(pair):
    with pair.client("b") as client:
        yield client


_numbers = itertools.count()


@pytest.fixture
def name():
    return f"r{next(_numbers)}"
