// What has to hold, and when.
#include <cstring>

#include "tests/sim/world/world_notes.hpp"

namespace penstock::sim {

void World::check_memory(const char* when) {
  for (const Machine& machine : machines_) {
    if (machine.life == nullptr || machine.life->ended) continue;
    for (const auto& store : machine.life->all_stores)
      if (const auto wrong = store->check())
        return broke("{}, seen {}{}", wrong->what, when, whose(*store, *wrong));
  }
}

/// The transfers whose bytes are where they should not be.
std::string World::whose(const Store& store, const Store::Wrong& wrong) const {
  std::string whose = fmt::format(", from byte {} on", wrong.at);
  for (const auto& [id, move] : moves_)
    for (const Piece& piece : move->pieces)
      if (wrong.page && store.resembles(*wrong.page, wrong.at, piece.destination))
        whose += fmt::format(", holds bytes of {} meant for page {}", move->number,
                             piece.destination_page);
  return whose;
}

/// One that nothing happened to is never held for dead by another such, whatever victims say of it.
void World::check_death(const Life& life, const MemberChange& change) {
  for (std::size_t i = 0; i < machines_.size(); ++i)
    if (machines_[i].name == change.record.node && !weather_.victim[i])
      broke("{} holds {} for dead, and nothing happened to either", machines_[life.machine].name,
            change.record.node);
}

void World::check_end() {
  for (const auto& [id, move] : moves_)
    if (!move->ended && !move->initiator->ended) broke("{} never ended", move->number);
  check_errands();
  check_members();
  for (const Machine& machine : machines_)
    if (machine.life != nullptr && !machine.life->ended) check_nothing_left(*machine.life);
}

/// Who lives knows who lives, and nobody else.
void World::check_members() {
  for (const Machine& machine : machines_) {
    if (machine.life == nullptr || machine.life->ended) continue;
    SimMember& member = *machine.life->member;
    if (member.draining()) continue;
    for (const Machine& other : machines_) {
      if (&other == &machine || other.life == nullptr) continue;
      const Incarnation incarnation = other.life->member->incarnation();
      const bool lives = !other.life->ended;
      if (lives && other.life->member->draining()) continue;
      if (lives && !member.here(other.name, incarnation))
        broke("{} does not know {} ({:x})", machine.name, other.name, incarnation);
      else if (lives && !member.connected(other.name))
        broke("{} is not connected to {} ({:x})", machine.name, other.name, incarnation);
      else if (!lives && member.here(other.name, incarnation))
        broke("{} does not know that {} ({:x}) is gone", machine.name, other.name, incarnation);
    }
  }
}

void World::check_nothing_left(Life& life) {
  SimMember& member = *life.member;
  SimNode& node = member.node();
  const std::string& name = member.name();
  if (member.ledger().in_flight() != 0) broke("{}: transfers are in flight", name);
  if (member.streams().size() != 0) broke("{}: streams are open", name);
  if (member.third_party().shadows().size() != 0) broke("{}: shadows are left", name);
  if (member.third_party().delegations().unfinished() != 0)
    broke("{}: it carries out transfers for others", name);
  if (node.outbound().size() != 0) broke("{}: outbound holds transfers", name);
  if (node.inbound().open_count() != 0) broke("{}: inbound transfers are open", name);
  if (node.inbound().known_count() != 0) broke("{}: inbound transfers are remembered", name);
  if (node.staging() != nullptr && node.staging()->lent() != 0)
    broke("{}: {} staging slots are lent", name, node.staging()->lent());
  for (const auto& region : node.regions().list())
    if (region->uses != 0) broke("{}: {} uses of {}", name, region->uses.load(), region->name);
  for (std::size_t card = 0; card < node.cards(); ++card) {
    const SimNic& nic = node.nic(card).card();
    if (nic.out() != 0) broke("{}: {} operations are out on card {}", name, nic.out(), card);
    if (!node.health(card).up()) broke("{}: card {} is not back", name, card);
    std::set<PeerHandle> there;
    for (const Machine& machine : machines_) {
      if (machine.life == nullptr || machine.life->ended) continue;
      for (std::size_t i = 0; i < machine.addresses.size(); ++i) {
        const LateNic& theirs = machine.life->member->node().nic(i);
        for (const FabricAddress& address : {theirs.control_address(), theirs.inbound_address()}) {
          PeerHandle handle = 0;
          std::memcpy(&handle, address.data(), sizeof handle);
          there.insert(handle);
        }
      }
    }
    for (const PeerHandle handle : nic.peer_handles())
      if (!there.contains(handle))
        broke("{}: card {} keeps an address ({:x}) that nobody has", name, card, handle);
  }
}

}  // namespace penstock::sim
