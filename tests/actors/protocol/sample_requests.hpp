// One or more well-formed requests of every operation, as a client would send them: what the
// decoding tests expect to pass, and what mutation and fuzzing start from.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace penstock::test {

using Bytes = std::vector<std::uint8_t>;

/// A list as clients send it: the elements' little-endian bytes in one BIN.
template <class T>
nlohmann::json blob(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return nlohmann::json::binary(std::move(bytes));
}

inline nlohmann::json request(std::uint64_t id, const char* op,
                              nlohmann::json fields = nlohmann::json::object()) {
  fields["v"] = 1;
  fields["id"] = id;
  fields["op"] = op;
  return fields;
}

inline nlohmann::json ranges_layout() {
  return {{"kind", "ranges"},
          {"ranges", blob<std::uint64_t>({0, 4096, 512, 8192, 0, 1024, 9216, 1024, 64})}};
}

inline nlohmann::json pages_layout() {
  return {{"kind", "pages"},
          {"page_bytes", 65536},
          {"source_stride", 131072},
          {"source_pages", blob<std::uint32_t>({3, 1, 2})},
          {"destination_pages", blob<std::uint32_t>({0, 1, 7})},
          {"bases", {{0, 0}, {1048576, 2097152}}}};
}

inline nlohmann::json strided_layout() {
  return {{"kind", "strided"},
          {"row_bytes", 256},
          {"rows", 4},
          {"source_pitch", 1024},
          {"destination_pitch", 512},
          {"source_stride", 4096},
          {"destination_stride", 2048},
          {"source_pages", blob<std::uint32_t>({5, 6})},
          {"destination_pages", blob<std::uint32_t>({0, 9})},
          {"bases", blob<std::uint64_t>({0, 0, 65536, 32768})}};
}

inline nlohmann::json transfer_spec(nlohmann::json layout) {
  return {{"direction", "write"},
          {"region", "kv"},
          {"targets", nlohmann::json::array({{{"node", "b"}, {"region", "kv"}}})},
          {"layout", std::move(layout)}};
}

inline nlohmann::json stream_terms() {
  return {{"direction", "write"},
          {"region", "kv"},
          {"target", {{"node", "b"}, {"region", "pool"}, {"epoch", 7}}},
          {"deadline_ms", 60000},
          {"lane", "urgent"},
          {"weight", 5},
          {"key", "request-81"},
          {"notify", "request-81"}};
}

inline nlohmann::json full_spec() {
  nlohmann::json spec = transfer_spec(strided_layout());
  spec["direction"] = "read";
  spec["targets"] = {{{"node", "b"}, {"region", "kv"}, {"epoch", 7}}, {{"region", "own"}}};
  spec["deadline_ms"] = 1500;
  spec["lane"] = "urgent";
  spec["weight"] = 10;
  spec["key"] = "request-81/layer-3";
  spec["notify"] = blob<std::uint8_t>({0, 255, 10});
  spec["path"] = "staged";
  spec["verify"] = true;
  spec["start_after"] = blob<std::uint8_t>(Bytes(64, 1));
  spec["record_event"] = blob<std::uint8_t>(Bytes(64, 2));
  return spec;
}

/// Of another node's.
inline nlohmann::json spec_elsewhere() {
  nlohmann::json spec = full_spec();
  for (const char* of_this_node : {"start_after", "record_event"}) spec.erase(of_this_node);
  spec["targets"] = {{{"node", "c"}, {"region", "kv"}, {"epoch", 7}}};
  spec["on"] = "b";
  return spec;
}

inline nlohmann::json transfer_request(std::uint64_t id, const std::vector<nlohmann::json>& specs) {
  return request(id, "transfer", {{"transfers", specs}});
}

struct Sample {
  std::string name;
  nlohmann::json value;
  Bytes bytes() const { return nlohmann::json::to_msgpack(value); }
};

inline std::vector<Sample> sample_requests() {
  return {
      {"hello", request(1, "hello", {{"client", "penstock-cli 0.1.0"}})},
      {"allocate",
       request(2, "allocate", {{"name", "kv"}, {"bytes", 1 << 30}, {"device", "numa0"}})},
      {"register", request(3, "register",
                           {{"name", "mine"},
                            {"shared_name", "/seg"},
                            {"offset", 4096},
                            {"bytes", 65536},
                            {"device", ""}})},
      {"allocate_cuda",
       request(2, "allocate",
               {{"name", "kv"}, {"bytes", 1 << 30}, {"memory", "cuda"}, {"gpu", 3}})},
      {"register_cuda", request(3, "register",
                                {{"name", "mine"},
                                 {"memory", "cuda"},
                                 {"ipc_handle", blob<std::uint8_t>(Bytes(64, 7))},
                                 {"offset", 512},
                                 {"bytes", 65536}})},
      {"release", request(4, "release", {{"name", "kv"}, {"force", true}})},
      {"regions", request(5, "regions")},
      {"nodes", request(6, "nodes")},
      {"status", request(7, "status")},
      {"transfer_ranges", transfer_request(8, {transfer_spec(ranges_layout())})},
      {"transfer_pages", transfer_request(9, {transfer_spec(pages_layout())})},
      {"transfer_full", transfer_request(10, {full_spec(), transfer_spec(pages_layout())})},
      {"transfer_on", transfer_request(10, {spec_elsewhere()})},
      {"cancel", request(11, "cancel", {{"ids", {1, 2, UINT64_MAX}}})},
      {"transfers",
       request(12, "transfers", {{"ids", blob<std::uint64_t>({4, 5})}, {"limit", 10}})},
      {"fill", request(13, "fill", {{"region", "kv"}, {"seed", 42}, {"offset", 8}, {"bytes", 64}})},
      {"digest",
       request(14, "digest",
               {{"region", "kv"}, {"page_bytes", 4096}, {"pages", blob<std::uint32_t>({9, 0})}})},
      {"digest_all",
       request(15, "digest",
               {{"region", "kv"}, {"page_bytes", 4096}, {"offset", 64}, {"bytes", 8192}})},
      {"subscribe",
       request(16, "subscribe", {{"topics", {"transfers", "notify", "members"}}, {"since", 0}})},
      {"drain", request(17, "drain", {{"node", "b"}, {"deadline_ms", 60000}})},
      {"remove", request(18, "remove", {{"node", "c"}, {"force", true}})},
      {"hello_lease", request(1, "hello", {{"client", "me"}, {"lease_ms", 60000}})},
      {"hello_ring", request(1, "hello", {{"client", "me"}, {"ring", 1}})},
      {"allocate_allow",
       request(2, "allocate", {{"name", "kv"}, {"bytes", 4096}, {"allow", {"b", "rack=r7"}}})},
      {"keep", request(19, "keep", {{"name", "kv"}})},
      {"stream", request(20, "stream", stream_terms())},
      {"append", request(21, "append",
                         {{"stream", 9001},
                          {"part", 3},
                          {"layout", pages_layout()},
                          {"notify", "layer 3"},
                          {"start_after", blob<std::uint8_t>(Bytes(64, 3))}})},
      {"close", request(22, "close", {{"stream", 9001}, {"parts", 80}})},
  };
}

}  // namespace penstock::test
