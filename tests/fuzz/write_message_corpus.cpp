// Writes a message of each kind, a credit and a packed buffer as files, the seeds of message_fuzz:
// write_message_corpus FOLDER
#include <array>
#include <string>

#include "actors/wire/message.hpp"
#include "tests/fuzz/write_corpus.hpp"
#include "transport/packing/credit.hpp"
#include "transport/packing/packed_buffer.hpp"

namespace {

using namespace penstock;

std::vector<std::byte> bytes_of(std::variant<Question, Answer> body) {
  Message message;
  message.source = 0x1122334455667788;
  message.destination = 3;
  message.sequence = 4;
  message.sent_ms = 5;
  message.sent_after_ms = 6;
  message.body = std::move(body);
  return encode(message).value();
}

std::vector<std::byte> packed() {
  std::vector<std::byte> slot(256);
  const std::array<std::byte, 20> page{};
  PackedWriter writer(slot);
  writer.add(0, page);
  writer.add(400, page);
  slot.resize(writer.finish());
  return slot;
}

template <std::size_t... I>
void add_questions(std::map<std::string, std::vector<std::byte>>& all, std::index_sequence<I...>) {
  (all.emplace("question-" + std::to_string(I), bytes_of(Question(std::in_place_index<I>))), ...);
}
template <std::size_t... I>
void add_answers(std::map<std::string, std::vector<std::byte>>& all, std::index_sequence<I...>) {
  (all.emplace("answer-" + std::to_string(I), bytes_of(Answer(std::in_place_index<I>))), ...);
}

std::map<std::string, std::vector<std::byte>> samples() {
  std::map<std::string, std::vector<std::byte>> all;
  add_questions(all, std::make_index_sequence<std::variant_size_v<Question>>());
  add_answers(all, std::make_index_sequence<std::variant_size_v<Answer>>());
  Open open;
  open.region = "kv";
  open.data.bytes = packed();
  all.emplace("open-with-data", bytes_of(Question(open)));
  OpenOk ok;
  ok.device = "numa0";
  ok.immediate = 7;
  ok.keys = {{0, 1, 2}};
  ok.staging = LentStaging{4096, {{9, 0}}, {{0, 1, 2}}};
  all.emplace("open-ok", bytes_of(Answer(ok)));
  all.emplace("credit", encode_credit({5, {1, 2, 3}}));
  all.emplace("packed", packed());
  return all;
}

}  // namespace

int main(int argc, char** argv) { return test::write_corpus(argc, argv, samples()); }
