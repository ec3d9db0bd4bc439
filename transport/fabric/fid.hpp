// Ownership of libfabric objects: closed with fi_close when the holder goes.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <string>

namespace penstock {

struct FidCloser {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};

/// Members that use one another are declared in the order of their opening: the last opened closes
/// first, as libfabric wants it.
template <class T>
using Fid = std::unique_ptr<T, FidCloser>;

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

/// The text of a negative libfabric return value, with its number.
inline std::string fabric_error(long status) {
  return std::string(fi_strerror(static_cast<int>(-status))) + " (" + std::to_string(status) + ")";
}

}  // namespace penstock
