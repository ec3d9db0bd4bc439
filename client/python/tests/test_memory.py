import gc
import multiprocessing.shared_memory
import os

import numpy as np
import pytest

import penstock
from penstock._mapping import shared_place


def test_an_allocated_region_is_a_view_of_the_services_memory(a, name):
    with a.allocate(name, 100_000) as region:
        assert region.array.shape == (100_000,) and region.array.dtype == np.uint8
        assert not region.array.any()
        a.fill(region, seed=42)
        pattern = region.view("<u8")[0]
        assert pattern == splitmix64(42)
        assert np.asarray(region)[8:16].view("<u8")[0] == splitmix64(43)


def splitmix64(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_writing_to_the_view_changes_what_the_service_sees(a, name):
    with a.allocate(name, 8192) as region:
        before = a.digest(region, 4096)
        assert before[0] == before[1]
        region[4096:] = 9
        after = a.digest(region, 4096)
        assert after[0] == before[0] and after[1] != before[1]
        assert list(a.digest(region, 4096, pages=[1, 0])) == [after[1], after[0]]
        assert a.digest(region, 4096, pages=[]).size == 0


def test_views_have_the_type_and_shape_that_is_asked_for(a, name):
    with a.allocate(name, 1000) as region:
        assert region.view(np.float32).shape == (250,)
        matrix = region.view(np.float32, (10, 20), offset=40)
        matrix[:] = 1.5
        assert np.frombuffer(bytes(region[40:44]), np.float32)[0] == 1.5
        assert len(region) == region.size == 1000


def test_leaving_the_block_releases_and_views_stay_valid(a, name):
    with a.allocate(name, 4096) as region:
        array = region.array
        array[:] = 5
        assert name in [each.name for each in a.regions()]
    assert region.released
    assert name not in [each.name for each in a.regions()]
    assert array.sum() == 5 * 4096  # memory of nobody else
    region.release()  # once more does no harm


def test_closing_the_client_releases_what_is_not_detached(pair, a, name):
    with pair.client("a") as other:
        other.allocate(name, 4096)
        kept = other.allocate(name + "-kept", 4096)
        kept.detach()
    names = [each.name for each in a.regions()]
    assert name not in names and name + "-kept" in names
    again = a.open(name + "-kept")
    again.array[:] = 1
    a.release(again)
    assert name + "-kept" not in [each.name for each in a.regions()]


def test_mappings_go_with_their_last_array(a, name):
    region = a.allocate(name, 1 << 20)
    part = region.array[100:200]
    shared = region.info.shared_name[1:]
    region.release()
    del region
    gc.collect()
    assert shared in open("/proc/self/maps").read()
    del part
    gc.collect()
    assert shared not in open("/proc/self/maps").read()


def test_a_taken_name_is_refused_in_the_services_words(a, name):
    with a.allocate(name, 4096):
        with pytest.raises(penstock.AlreadyExists, match=name) as caught:
            a.allocate(name, 4096)
        assert caught.value.code == "ALREADY_EXISTS"
    with pytest.raises(penstock.NotFound):
        a.release(name)
    with pytest.raises(penstock.NotFound):
        a.open(name)


def test_memory_of_a_gpu_is_refused_with_the_reason_where_there_is_none(a, name):
    with pytest.raises(penstock.Unsupported):
        a.allocate(name, 4096, memory="cuda")


# -- memory of our own -----------------------------------------------------------------------------

def test_a_shared_array_is_registered_without_a_copy(a, name):
    array = penstock.shared_array((4, 1024), np.uint16)
    with a.register(name, array) as region:
        array[2] = 0x1234
        assert region.array[4096] == 0x34
        assert a.digest(region, 2048)[2] != a.digest(region, 2048)[3]
        assert region.info.owner == "client"
    assert array[2, 5] == 0x1234


def test_a_part_of_an_array_is_registered_where_it_lies(a, name):
    array = penstock.shared_array(100_000)
    with a.register(name, array[5000:60_000]) as region:
        assert region.size == 55_000 and region.info.shared_offset == 5000
        a.fill(region, seed=1)
        assert not array[:5000].any() and array[5000:60_000].any() and not array[60_000:].any()


def test_memory_of_multiprocessing_is_registered(a, name):
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=65536)
    try:
        for each in (memory, np.frombuffer(memory.buf, np.uint8)):
            with a.register(name, each) as region:
                assert region.size >= 65536
                a.fill(region, seed=3)
        del each
        assert bytes(memory.buf[:8]) == splitmix64(3).to_bytes(8, "little")
        with a.register(name, shared_name="/" + memory._name.lstrip("/"), offset=4096, size=8192):
            pass
    finally:
        region = None
        gc.collect()
        memory.close()
        memory.unlink()


@pytest.mark.parametrize("memory, words", [
    (lambda: np.zeros(100_000, np.uint8), "shared segment"),
    (lambda: penstock.shared_array((100, 100))[:, :50], "contiguous"),
])
def test_memory_that_cannot_be_shared_is_refused_before_it_is_sent(a, name, memory, words):
    with pytest.raises(penstock.InvalidArgument, match=words):
        a.register(name, memory())


def test_register_takes_memory_or_a_name(a, name):
    with pytest.raises(penstock.InvalidArgument):
        a.register(name)
    with pytest.raises(penstock.InvalidArgument):
        a.register(name, penstock.shared_array(10), size=5)
    with pytest.raises(penstock.InvalidArgument):
        a.register(name, shared_name="/x")
    with pytest.raises(penstock.Error):
        a.register(name, shared_name="/no-such-segment", size=4096)


def test_the_segment_goes_with_its_array():
    array = penstock.shared_array(4096)
    place = shared_place(array)
    path = "/dev/shm" + place.shared_name
    assert os.stat(path).st_size == 4096 and os.stat(path).st_mode & 0o777 == 0o600
    part = array[10:20]
    del array
    gc.collect()
    assert os.path.exists(path)
    del part
    gc.collect()
    assert not os.path.exists(path)


def test_a_named_segment_is_made_once():
    array = penstock.shared_array(10, name=f"penstock-test-{os.getpid()}")
    with pytest.raises(penstock.AlreadyExists):
        penstock.shared_array(10, name=f"penstock-test-{os.getpid()}")
    assert array.size == 10
