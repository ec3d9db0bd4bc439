// The CUDA driver's functions, looked up when they are first used: a program linked with this
// starts on machines that have no driver. Only files of this folder include this.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "transport/error.hpp"

namespace penstock::gpu {

#define PENSTOCK_DRIVER_FUNCTIONS(X)        \
  X(cuGetErrorName)                         \
  X(cuGetErrorString)                       \
  X(cuDeviceGetAttribute)                   \
  X(cuDevicePrimaryCtxGetState)             \
  X(cuDevicePrimaryCtxRetain)               \
  X(cuDevicePrimaryCtxRelease)              \
  X(cuCtxGetCurrent)                        \
  X(cuCtxSetCurrent)                        \
  X(cuPointerGetAttribute)                  \
  X(cuMemGetAddressRange)                   \
  X(cuMemCreate)                            \
  X(cuMemRelease)                           \
  X(cuMemAddressReserve)                    \
  X(cuMemAddressFree)                       \
  X(cuMemMap)                               \
  X(cuMemUnmap)                             \
  X(cuMemSetAccess)                         \
  X(cuMemGetAllocationGranularity)          \
  X(cuMemExportToShareableHandle)           \
  X(cuMemImportFromShareableHandle)         \
  X(cuMemRetainAllocationHandle)            \
  X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemGetHandleForAddressRange)          \
  X(cuFlushGPUDirectRDMAWrites)

struct Driver {
  // NOLINTNEXTLINE(bugprone-macro-parentheses): it is a name
#define PENSTOCK_DRIVER_POINTER(name) decltype(&::name) name = nullptr;
  PENSTOCK_DRIVER_FUNCTIONS(PENSTOCK_DRIVER_POINTER)
#undef PENSTOCK_DRIVER_POINTER
};

/// kUnsupported: no driver, or one that lacks a function (says which).
const Result<Driver>& driver();

/// "cudaMalloc of 8 bytes on GPU 0: out of memory (cudaErrorMemoryAllocation)", kProvider unless
/// `code` says otherwise. Clears the runtime's last error.
tl::unexpected<Error> cuda_failed(cudaError_t error, const std::string& what,
                                  ErrorCode code = ErrorCode::kProvider);
tl::unexpected<Error> driver_failed(CUresult error, const std::string& what,
                                    ErrorCode code = ErrorCode::kProvider);

/// Success, or cuda_failed.
Result<void> check_cuda(cudaError_t error, const char* what);

}  // namespace penstock::gpu
