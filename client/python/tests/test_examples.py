import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import demo_services
import penstock
import safetensors_file

FOLDER = pathlib.Path(__file__).resolve().parent.parent
SOURCE = pathlib.Path(penstock.__file__).resolve().parent.parent


def run(script, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run([sys.executable, str(FOLDER / script), *arguments], env=environment,
                           capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(autouse=True)
def binaries():
    try:
        demo_services.binary()
    except demo_services.NoBinary as problem:
        pytest.skip(str(problem))


def test_prefill_to_decode():
    out = run("examples/prefill_to_decode.py", "--demo")
    assert out.count("a layer at a time: computed") == out.count("all at the end: computed") == 4
    assert out.count("equal") == 8 and "hidden behind the model" in out


def test_push_weights():
    out = run("examples/push_weights.py", "--demo")
    assert "step 1: all 3 nodes have the trainer's weights" in out


def test_elastic_pool():
    out = run("examples/elastic_pool.py", "--demo")
    assert out.count("blocks equal, 2 copies each") == 4


def test_the_benchmark_runs():
    assert "u32 arrays" in run("benchmarks/encode.py", "1000")
    assert "accepted" in run("benchmarks/write_pages.py", "1000", "--rounds", "1")


def test_the_files_of_push_weights_are_safetensors(tmp_path):
    tensors = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(5, np.float16),
               "c": np.array([1, 2], np.int64)}
    file = tmp_path / "model.safetensors"
    safetensors_file.save(file, tensors)
    ours = safetensors_file.views(np.fromfile(file, np.uint8))
    assert all(np.array_equal(ours[name], tensor) for name, tensor in tensors.items())
    theirs = pytest.importorskip("safetensors.numpy").load_file(file)
    assert set(theirs) == set(tensors)
    assert all(np.array_equal(theirs[name], tensor) for name, tensor in tensors.items())
