"""Memory of GPUs that two processes share, by the driver's IPC handles. ctypes only: no CUDA
toolkit, torch or cupy is needed, but the driver (libcuda) is."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, NamedTuple, Optional, Tuple

from .errors import InvalidArgument, ProviderError, Unsupported

IPC_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
_driver: Optional[ctypes.CDLL] = None


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * IPC_HANDLE_BYTES)]


def driver() -> ctypes.CDLL:
    """libcuda, ready. Raises Unsupported where there is no driver or no GPU."""
    global _driver
    if _driver is None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as problem:
            raise Unsupported("UNSUPPORTED", f"no CUDA driver here ({problem}); memory of a GPU "
                              "can be used only where NVIDIA's driver is installed") from None
        library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), _IpcHandle,
                                                  ctypes.c_uint]
        library.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
        library.cuIpcGetMemHandle.argtypes = [ctypes.POINTER(_IpcHandle), ctypes.c_uint64]
        library.cuMemGetAddressRange_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64),
                                                    ctypes.POINTER(ctypes.c_size_t),
                                                    ctypes.c_uint64]
        code = library.cuInit(0)
        if code != 0:
            raise Unsupported("UNSUPPORTED", "the CUDA driver does not start "
                              f"({_name(library, code)}); has this process a GPU?")
        _driver = library
    return _driver


def _name(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"error {code}"


def _check(code: int, what: str) -> None:
    if code != 0:
        raise ProviderError("PROVIDER", f"{what}: {_name(driver(), code)}")


class _Context:
    """The primary context of a GPU, which torch and cupy use too, current inside `with`."""

    def __init__(self, bus_id: str) -> None:
        self._device = ctypes.c_int()
        self._context = ctypes.c_void_p()
        _check(driver().cuDeviceGetByPCIBusId(ctypes.byref(self._device), bus_id.encode()),
               f"GPU {bus_id} (is it hidden by CUDA_VISIBLE_DEVICES?)")
        _check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(self._context), self._device),
               f"the context of GPU {bus_id}")

    @property
    def ordinal(self) -> int:
        return self._device.value

    def __enter__(self) -> _Context:
        _check(driver().cuCtxPushCurrent_v2(self._context), "making a context current")
        return self

    def __exit__(self, *_: object) -> None:
        driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def release(self) -> None:
        driver().cuDevicePrimaryCtxRelease_v2(self._device)


class CudaMemory:
    """A region's memory on a GPU, mapped into this process until close() or the object goes.

    torch and cupy take it without a copy: ``torch.as_tensor(memory, device="cuda")``,
    ``cupy.asarray(memory)``; they keep it mapped.
    """

    def __init__(self, ipc_handle: bytes, offset: int, size: int, bus_id: str) -> None:
        if len(ipc_handle) != IPC_HANDLE_BYTES:
            raise Unsupported("UNSUPPORTED", "the service gives no IPC handle for this memory: it "
                              "belongs to the client that registered it")
        self._base = 0
        self._context = _Context(bus_id)
        self.size = size
        base = ctypes.c_uint64()
        with self._context:
            code = driver().cuIpcOpenMemHandle_v2(
                ctypes.byref(base), _IpcHandle.from_buffer_copy(ipc_handle), _LAZY_PEER_ACCESS)
        _check(code, "opening the IPC handle")
        self._base, self._offset = base.value, offset

    @property
    def device(self) -> int:
        """The GPU's number in this process."""
        return self._context.ordinal

    @property
    def pointer(self) -> int:
        return self._base + self._offset

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if not self._base:
            raise InvalidArgument("INVALID_ARGUMENT", "this memory was closed")
        return {"version": 3, "typestr": "|u1", "shape": (self.size,), "strides": None,
                "data": (self.pointer, False), "stream": None}

    def __dlpack_device__(self) -> Tuple[int, int]:
        return 2, self.device  # kDLCUDA

    def __dlpack__(self, **arguments: Any) -> Any:
        """By torch, else cupy: neither copies."""
        try:
            import torch
            return torch.as_tensor(self, device=f"cuda:{self.device}").__dlpack__(**arguments)
        except ImportError:
            pass
        try:
            import cupy
        except ImportError:
            raise Unsupported("UNSUPPORTED", "DLPack needs torch or cupy; __cuda_array_interface__ "
                              "needs neither") from None
        return cupy.asarray(self).__dlpack__(**arguments)

    def close(self) -> None:
        """Nothing may use the memory through this object after it."""
        if self._base:
            with self._context:
                driver().cuIpcCloseMemHandle(self._base)
            self._base = 0
            self._context.release()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the driver may be gone at the end of the process
            pass


class CudaPlace(NamedTuple):
    """Where a piece of memory of this process lies, as another process can find it."""

    ipc_handle: bytes
    offset: int
    size: int
    bus_id: str
    gpu: int  # as this process numbers them


def cuda_place(memory: Any) -> CudaPlace:
    """Of anything with `__cuda_array_interface__` that is contiguous: a torch tensor, a cupy array.
    Needs memory of cudaMalloc: torch's expandable segments cannot be shared."""
    interface = memory.__cuda_array_interface__
    itemsize = int(interface["typestr"][2:])
    size = itemsize
    for extent in interface["shape"]:
        size *= int(extent)
    strides, expected = interface.get("strides"), itemsize
    if strides is not None:
        for extent, stride in zip(reversed(interface["shape"]), reversed(strides)):
            if extent != 1 and stride != expected:
                raise InvalidArgument("INVALID_ARGUMENT", "the tensor is not contiguous; register "
                                      "the whole of it, and say in transfers which parts move")
            expected *= int(extent)
    address = int(interface["data"][0])
    if size == 0 or address == 0:
        raise InvalidArgument("INVALID_ARGUMENT", "the tensor is empty")
    cuda = driver()
    device = ctypes.c_int()
    # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    _check(cuda.cuPointerGetAttribute(ctypes.byref(device), 9, ctypes.c_uint64(address)),
           "asking whose memory it is")
    bus = ctypes.create_string_buffer(32)
    _check(cuda.cuDeviceGetPCIBusId(bus, len(bus), device), "the bus id of the GPU")
    base, length, handle = ctypes.c_uint64(), ctypes.c_size_t(), _IpcHandle()
    with _Context(bus.value.decode()):
        _check(cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), address),
               "the range of the allocation")
        _check(cuda.cuIpcGetMemHandle(ctypes.byref(handle), base),
               "the IPC handle of the allocation (it must be of cudaMalloc: with torch, without "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)")
    return CudaPlace(bytes(handle.reserved), address - base.value, size, bus.value.decode(),
                     device.value)
