// The xxHash library's default secret.
#pragma once

#include "transport/gpu/cuda/xxh3.hpp"

namespace penstock::gpu {

const xxh3::Secret& default_secret();

}  // namespace penstock::gpu
