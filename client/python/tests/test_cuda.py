"""Memory of GPUs. Without a driver: what is refused, and how. With one: two processes share memory
by its handle (needs no service)."""

import ctypes
import multiprocessing

import numpy as np
import pytest

import penstock
from penstock import _calls, cuda
from penstock.region import Region, RegionInfo

try:
    cuda.driver()
    HAS_GPU = True
except penstock.Unsupported:
    HAS_GPU = False
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="no CUDA driver with a GPU here")


class Tensor:
    def __init__(self, shape, strides=None, pointer=4096, typestr="<f4"):
        self.__cuda_array_interface__ = {"version": 3, "shape": shape, "strides": strides,
                                         "typestr": typestr, "data": (pointer, False)}


class NoCore:
    def keep(self, region):
        pass


def region(kind):
    return Region(NoCore(), RegionInfo("g", 100, kind=kind, gpu_bus="0000:01:00.0",
                                       ipc_handle=bytes(64)), ("allocate", {}))


@pytest.mark.skipif(HAS_GPU, reason="there is a driver")
def test_no_driver_is_told_with_its_reason():
    with pytest.raises(penstock.Unsupported, match="driver"):
        cuda.driver()
    with pytest.raises(penstock.Unsupported):
        region("cuda").cuda
    with pytest.raises(penstock.Unsupported):
        cuda.cuda_place(Tensor((4, 4)))


def test_host_memory_is_no_cuda_memory_and_the_other_way_round():
    with pytest.raises(penstock.Unsupported, match="use `array`"):
        region("host").cuda
    assert not hasattr(region("host"), "__cuda_array_interface__")
    with pytest.raises(penstock.Unsupported, match="use `cuda`"):
        region("cuda").array


def test_tensors_with_gaps_are_refused():
    with pytest.raises(penstock.InvalidArgument, match="contiguous"):
        cuda.cuda_place(Tensor((4, 4), strides=(32, 4)))
    with pytest.raises(penstock.InvalidArgument, match="empty"):
        cuda.cuda_place(Tensor((0, 4)))


def test_a_region_without_a_handle_cannot_be_opened():
    with pytest.raises(penstock.Unsupported, match="belongs to the client"):
        cuda.CudaMemory(b"", 0, 100, "0000:01:00.0")


def _lend(pipe):
    """Allocates, tells where, and says what is there in the end."""
    driver = cuda.driver()
    bus = ctypes.create_string_buffer(32)
    device = ctypes.c_int()
    cuda._check(driver.cuDeviceGet(ctypes.byref(device), 0), "a device")
    cuda._check(driver.cuDeviceGetPCIBusId(bus, 32, device), "its bus")
    with cuda._Context(bus.value.decode()):
        pointer = ctypes.c_uint64()
        cuda._check(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)), "memory")
        cuda._check(driver.cuMemsetD8_v2(pointer, ctypes.c_ubyte(7), ctypes.c_size_t(1 << 20)),
                    "a fill")
        cuda._check(driver.cuCtxSynchronize(), "a wait")
        pipe.send(tuple(cuda.cuda_place(Tensor((1000,), pointer=pointer.value + 4096,
                                               typestr="|u1")))[:4])
        pipe.recv()
        host = np.empty(1000, np.uint8)
        cuda._check(driver.cuMemcpyDtoH_v2(ctypes.c_void_p(host.ctypes.data),
                                           ctypes.c_uint64(pointer.value + 4096),
                                           ctypes.c_size_t(1000)), "a copy")
        pipe.send(host.tobytes())


def test_a_gpu_that_the_service_numbers_otherwise_is_told():
    info = RegionInfo("g", 100, kind="cuda", gpu=1, gpu_bus="0000:0A:00.0")
    _calls.check_gpu(info, "0000:0a:00.0")
    _calls.check_gpu(RegionInfo("g", 100), "")
    with pytest.raises(penstock.InvalidArgument, match="gpu="):
        _calls.check_gpu(info, "0000:0b:00.0")


@needs_gpu
def test_two_processes_share_memory_by_its_handle():
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    lender = spawn.Process(target=_lend, args=(theirs,))
    lender.start()
    try:
        assert ours.poll(60)
        handle, offset, size, bus = ours.recv()
        assert (offset, size) == (4096, 1000)
        memory = cuda.CudaMemory(handle, offset, size, bus)
        interface = memory.__cuda_array_interface__
        assert interface["shape"] == (1000,)
        host = np.zeros(1000, np.uint8)
        with memory._context:
            cuda._check(cuda.driver().cuMemcpyDtoH_v2(
                ctypes.c_void_p(host.ctypes.data), ctypes.c_uint64(memory.pointer),
                ctypes.c_size_t(1000)), "a copy")
            assert (host == 7).all()
            host[:] = np.arange(1000)
            cuda._check(cuda.driver().cuMemcpyHtoD_v2(
                ctypes.c_uint64(memory.pointer), ctypes.c_void_p(host.ctypes.data),
                ctypes.c_size_t(1000)), "a copy")
        try:
            import torch
        except ImportError:
            pass
        else:
            assert torch.as_tensor(memory, device=f"cuda:{memory.device}").data_ptr() \
                == torch.from_dlpack(memory).data_ptr() == memory.pointer
        memory.close()
        with pytest.raises(penstock.InvalidArgument, match="closed"):
            memory.__cuda_array_interface__
        ours.send("look")
        assert ours.poll(60) and ours.recv() == host.tobytes()
    finally:
        lender.join(30)
        lender.kill()
