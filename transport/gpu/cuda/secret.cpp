#include "transport/gpu/cuda/secret.hpp"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

namespace penstock::gpu {

const xxh3::Secret& default_secret() {
  static_assert(xxh3::kSecretBytes == XXH3_SECRET_DEFAULT_SIZE);
  static const xxh3::Secret secret = [] {
    xxh3::Secret made{};
    XXH3_generateSecret_fromSeed(made.bytes, 0);  // seed 0 changes nothing
    return made;
  }();
  return secret;
}

}  // namespace penstock::gpu
