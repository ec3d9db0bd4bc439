#include "transport/gpu/inventory.hpp"

#include <cstdlib>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/topology/bus_id.hpp"

namespace penstock {
namespace {

std::string version_words(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string uuid_words(const cudaUUID_t& uuid) {
  std::string words = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) words += '-';
    words += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return words;
}

int attribute(cudaDeviceAttr which, int gpu) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, gpu) != cudaSuccess) (void)cudaGetLastError();
  return value;
}

int attribute(CUdevice_attribute which, int gpu) {
  int value = 0;
  if (gpu::driver()) gpu::driver()->cuDeviceGetAttribute(&value, which, gpu);
  return value;
}

RdmaOrdering ordering_of(int gpu) {
  const int value = attribute(cudaDevAttrGPUDirectRDMAWritesOrdering, gpu);
  if (value >= cudaGPUDirectRDMAWritesOrderingAllDevices) return RdmaOrdering::kAllDevices;
  if (value >= cudaGPUDirectRDMAWritesOrderingOwner) return RdmaOrdering::kOwner;
  return RdmaOrdering::kNone;
}

Result<Gpu> read_gpu(int index, int count) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return gpu::cuda_failed(error, fmt::format("reading the properties of GPU {}", index));
  Gpu gpu;
  gpu.index = index;
  gpu.bus_id = format_bus_id(static_cast<unsigned>(properties.pciDomainID),
                             static_cast<unsigned>(properties.pciBusID),
                             static_cast<unsigned>(properties.pciDeviceID), 0);
  gpu.uuid = uuid_words(properties.uuid);
  gpu.name = properties.name;
  gpu.memory_bytes = properties.totalGlobalMem;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.compute_major = properties.major;
  gpu.compute_minor = properties.minor;
  gpu.virtual_memory =
      attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, index) != 0 &&
      attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, index) != 0;
  gpu.gpudirect_rdma = attribute(cudaDevAttrGPUDirectRDMASupported, index) != 0;
  gpu.dma_buf = attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, index) != 0;
  gpu.rdma_ordering = ordering_of(index);
  gpu.rdma_flush = (attribute(cudaDevAttrGPUDirectRDMAFlushWritesOptions, index) &
                    cudaFlushGPUDirectRDMAWritesOptionHost) != 0;
  for (int other = 0; other < count; ++other) {
    int reaches = 0;
    if (other != index && cudaDeviceCanAccessPeer(&reaches, index, other) == cudaSuccess && reaches)
      gpu.peers.push_back(other);
  }
  return gpu;
}

std::string why_not(cudaError_t error, const std::string& visible) {
  std::string why;
  if (error == cudaErrorInsufficientDriver)
    why = "the NVIDIA driver is missing or older than this build wants";
  else if (error == cudaErrorNoDevice)
    why = "the NVIDIA driver shows no GPU";
  else
    why = fmt::format("CUDA does not start: {} ({})", cudaGetErrorString(error),
                      cudaGetErrorName(error));
  if (!visible.empty()) why += "; CUDA_VISIBLE_DEVICES is '" + visible + "'";
  return why;
}

GpuInventory read_inventory() {
  GpuInventory inventory;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    inventory.visible_devices = visible;
    if (inventory.visible_devices.empty()) inventory.visible_devices = "(empty)";
  }
  int version = 0;
  cudaRuntimeGetVersion(&version);
  inventory.runtime_version = version_words(version);
  version = 0;
  cudaDriverGetVersion(&version);
  inventory.driver_version = version_words(version);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (error != cudaSuccess || count == 0) {
    inventory.why_none =
        why_not(error == cudaSuccess ? cudaErrorNoDevice : error, inventory.visible_devices);
    return inventory;
  }
  for (int index = 0; index < count; ++index) {
    auto gpu = read_gpu(index, count);
    if (!gpu) {  // indices must stay CUDA's, so one that cannot be read ends the list
      if (inventory.gpus.empty()) inventory.why_none = gpu.error().message;
      break;
    }
    inventory.gpus.push_back(*std::move(gpu));
  }
  return inventory;
}

}  // namespace

const GpuInventory& gpu_inventory() {
  static const GpuInventory inventory = read_inventory();
  return inventory;
}

}  // namespace penstock
