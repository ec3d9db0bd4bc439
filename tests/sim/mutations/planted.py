"""Bugs to plant: where, and what is put in the place of what. One per promise of
docs/architecture.md and more; docs/reliability.md tells what each breaks. The text to be replaced
has to be in the file exactly once: when the code moves on, run.py says so."""

from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    promise: str  # of docs/architecture.md
    file: str
    old: str
    new: str


BUGS = [
    Bug("ends_while_writes_are_out", "1 quiet", "transport/poller/loop_completions.cpp",
        "if (transfer.operations_out() > 0 || transfer.state", "if (transfer.state"),
    Bug("ends_without_a_fence", "1 quiet", "actors/device/outbound_stop.cpp",
        "if (transfer.peer_gone || !transfer.peer)\n",
        "if (transfer.peer_gone || !transfer.peer || transfer.reason)\n"),
    Bug("fence_leaves_the_endpoint_open", "1 quiet", "actors/device/inbound.cpp",
        "if (card.generation < generation) continue;",
        "if (card.generation <= generation) continue;"),
    Bug("credit_before_the_scatter", "1 quiet", "transport/poller/packed_arrivals.cpp",
        "  move.ticket = *ticket;\n",
        "  move.ticket = *ticket;\n  if (move.armed) credit(move.lent, move.immediate), "
        "move.armed = false;\n"),
    Bug("repeated_data_is_written_again", "1 quiet", "actors/device/inbound.cpp",
        "if (auto found = transfers_.find(key); found != transfers_.end()) {\n"
        "    if (found->second.state == State::kEnded)",
        "if (auto found = transfers_.find(key);\n"
        "      found != transfers_.end() && question.data.bytes.empty()) {\n"
        "    if (found->second.state == State::kEnded)"),
    Bug("data_is_written_after_its_lease", "1 quiet", "actors/device/inbound.cpp",
        "return asked_at + fresh < now;", "return asked_at == TimePoint::min();"),
    Bug("fenced_data_is_written_once_forgotten", "1 quiet", "actors/device/inbound.cpp",
        "std::min(Milliseconds(question.lease_ms), options_.remember)",
        "Milliseconds(question.lease_ms)"),
    Bug("region_let_go_under_transfers", "1 quiet", "actors/device/region_table.cpp",
        "if (!found->second || !found->second->closing || found->second->uses > 0) return false;",
        "if (!found->second || !found->second->closing) return false;"),
    Bug("counted_one_chunk_early", "1 quiet", "actors/device/inbound.cpp",
        "port_.command(ArmImmediate{*transfer.immediate, question.chunks});",
        "port_.command(ArmImmediate{*transfer.immediate,\n"
        "                               question.chunks - (question.chunks > 1 ? 1 : 0)});"),
    Bug("silent_executor_is_said_to_be_quiet", "1 quiet", "actors/node/shadows.cpp",
        "never_sent ? Remote::kQuiet : Remote::kUnreachable, now);", "Remote::kQuiet, now);"),
    Bug("stream_ends_before_its_parts", "1 quiet", "actors/node/streams.cpp",
        "stream.state == State::kEnded || !stream.under_way.empty())",
        "stream.state == State::kEnded)"),
    Bug("delegated_twice_runs_twice", "2 one terminal event", "actors/node/delegations.cpp",
        "    if (entry.state == State::kRefused) return refused(entry.refused);\n"
        "    return Delegated{entry.executed_as};\n  }\n  if (part.transfer == 0",
        "    if (entry.state == State::kRefused) return refused(entry.refused);\n"
        "    if (part.part.bytes.size() != part.total) return Delegated{entry.executed_as};\n"
        "    asker.entries.erase(part.transfer);\n  }\n  if (part.transfer == 0"),
    Bug("expired_ones_end_without_a_word", "2 one terminal event", "actors/device/outbound.cpp",
        "  if (id < kWarmUpIds)\n    port_.ended(std::move(result));",
        "  if (id < kWarmUpIds && outcome != Outcome::kExpired)\n    port_.ended(std::move(result));"),
    Bug("copy_ends_twice", "2 one terminal event", "actors/device/outbound.cpp",
        "  end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);\n}\n\n"
        "// -- the end",
        "  port_.ended(result_of(transfer, now));\n"
        "  end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);\n}\n\n"
        "// -- the end"),
    Bug("any_epoch_is_taken", "3 identities", "actors/device/region_table.cpp",
        "if (epoch != 0 && epoch != region.epoch)",
        "if (epoch != 0 && epoch > region.epoch)"),
    Bug("older_runs_come_back", "3 identities", "actors/membership/swim_knowledge.cpp",
        "table_[known].who->incarnation < rumor.who->incarnation)\n",
        "table_[known].who->incarnation != rumor.who->incarnation)\n"),
    Bug("one_lost_peer_fails_all", "4 trouble stays", "actors/device/outbound.cpp",
        "    if (transfer.peer == peer) affected.push_back(id);\n",
        "    if (transfer.peer == peer || transfer.peer) affected.push_back(id);\n"),
    Bug("deaths_of_one_who_was_away_are_believed", "4 trouble stays",
        "actors/membership/swim_knowledge.cpp",
        "(tabled || was_away(*teller, now) || spoke_lately(member, now)) &&", "tabled &&"),
    Bug("fence_waits_for_ever", "5 deadlines", "actors/device/outbound_stop.cpp",
        "final ? due : std::max(due, deadline));", "TimePoint::max());"),
    Bug("lease_never_ends", "5 deadlines", "actors/device/inbound.cpp",
        "            : Error{ErrorCode::kDeadlineExceeded, \"the initiator's lease ended without a "
        "word\"};\n    own_fence(key, transfer, cause, now);",
        "            : Error{ErrorCode::kDeadlineExceeded, \"the initiator's lease ended without a "
        "word\"};\n    if (transfer.region->closing) own_fence(key, transfer, cause, now);"),
    Bug("slots_are_not_given_back", "nothing is left", "actors/device/inbound.cpp",
        "      staging_->give_back(slot.offset);\n    }\n  }\n  if (!transfer.immediate) return;",
        "    }\n  }\n  if (!transfer.immediate) return;"),
    Bug("addresses_are_kept", "nothing is left", "transport/poller/loop_completions.cpp",
        "  cards[link.nic]->nic->remove_peer(address->handle);\n  std::erase_if",
        "  std::erase_if"),
    Bug("key_of_another_card", "bytes", "actors/device/outbound_open.cpp",
        "      if (key.nic == link.remote_nic)\n",
        "      if (key.nic == link.local_nic)\n"),
    Bug("joins_pages_that_are_no_neighbours", "bytes", "transport/plan/plan.cpp",
        "else if (limits.merge && open_.joins(ahead_))",
        "else if (limits.merge && open_.source + open_.length == ahead_.source)"),
]
