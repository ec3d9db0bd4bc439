// Uses every header of the installed client. Exits 0 when a client without a service says so.
#include <cstdio>
#include <penstock/penstock.hpp>

int main() {
  using namespace penstock::client;
  std::vector<std::uint32_t> pages{1, 2, 3};
  TransferSpec spec{
      .region = "cache",
      .targets = {{"node-b", "cache"}},
      .layout = Pages{.page_bytes = 65536, .source_pages = pages, .destination_pages = pages}};
  if (bytes_of(spec.layout) != 3 * 65536) return 1;
  try {
    Client client({.endpoint = "ipc:///tmp/penstock-consumer-finds-nobody", .timeout_ms = 50});
  } catch (const Error& error) {
    std::puts(error.what());
    return error.code() == "DEADLINE_EXCEEDED" ? 0 : 1;
  }
  return 1;
}
