#include "transport/gpu/cuda/driver.hpp"

namespace penstock::gpu {
namespace {

Result<Driver> look_up() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    return fail(ErrorCode::kUnsupported, "no NVIDIA driver on this machine");
  Driver found;
#define PENSTOCK_LOOK_UP(name)                                                                 \
  {                                                                                            \
    void* function = nullptr;                                                                  \
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;               \
    const cudaError_t error = cudaGetDriverEntryPointByVersion(#name, &function, CUDA_VERSION, \
                                                               cudaEnableDefault, &result);    \
    if (error != cudaSuccess)                                                                  \
      return cuda_failed(error, "looking up " #name, ErrorCode::kUnsupported);                 \
    if (function == nullptr)                                                                   \
      return fail(ErrorCode::kUnsupported, "the NVIDIA driver (CUDA {}.{}) has no " #name,     \
                  version / 1000, version % 1000 / 10);                                        \
    found.name = reinterpret_cast<decltype(found.name)>(function);                             \
  }
  PENSTOCK_DRIVER_FUNCTIONS(PENSTOCK_LOOK_UP)
#undef PENSTOCK_LOOK_UP
  return found;
}

}  // namespace

const Result<Driver>& driver() {
  static const Result<Driver> found = look_up();
  return found;
}

tl::unexpected<Error> cuda_failed(cudaError_t error, const std::string& what, ErrorCode code) {
  (void)cudaGetLastError();  // else the next call that is all right reports it again
  return fail(code, "{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

tl::unexpected<Error> driver_failed(CUresult error, const std::string& what, ErrorCode code) {
  const char* name = nullptr;
  const char* words = nullptr;
  if (driver()) {
    driver()->cuGetErrorName(error, &name);
    driver()->cuGetErrorString(error, &words);
  }
  return fail(code, "{}: {} ({})", what, words ? words : "an unknown error",
              name ? name : std::to_string(error));
}

Result<void> check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return cuda_failed(error, what);
}

}  // namespace penstock::gpu
