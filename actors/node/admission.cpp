#include "actors/node/admission.hpp"

namespace penstock {
namespace {

Result<void> fits(const Region& region, std::uint64_t end, std::string_view side) {
  if (end <= region.bytes) return {};
  return fail(ErrorCode::kOutOfRange,
              "the {} ranges reach byte {} of region '{}', which has {} bytes", side, end,
              region.name, region.bytes);
}

}  // namespace

Result<std::vector<Admitted>> admit(const TransferSpec& spec, const AdmissionRules& rules,
                                    RegionTable& regions, TimePoint now) {
  if (spec.targets.empty())
    return fail(ErrorCode::kInvalidArgument, "a transfer needs at least one target");
  auto plan = Plan::make(spec.layout, rules.plan);
  if (!plan) return tl::unexpected(plan.error());
  const bool write = spec.direction == Direction::kWrite;
  const std::uint64_t local_end = write ? (*plan)->source_end() : (*plan)->destination_end();
  const std::uint64_t remote_end = write ? (*plan)->destination_end() : (*plan)->source_end();
  const auto deadline =
      now + (spec.deadline_ms ? Milliseconds(spec.deadline_ms) : rules.default_deadline);

  std::vector<Admitted> admitted;
  admitted.reserve(spec.targets.size());
  for (const TransferTarget& target : spec.targets) {
    auto local = regions.use(spec.region);
    if (!local) return tl::unexpected(local.error());
    if (auto fit = fits(**local, local_end, write ? "source" : "destination"); !fit)
      return tl::unexpected(fit.error());
    Admitted one;
    one.node = target.node.empty() ? rules.node : target.node;
    one.remote_region = target.region;
    one.remote_epoch = target.epoch;
    one.direction = spec.direction;
    one.plan = *plan;
    one.local = std::make_shared<RegionUse>(std::move(*local));
    one.lane = spec.lane;
    one.weight = spec.weight;
    one.notify = spec.notify;
    one.packing = spec.packing;
    one.deadline = deadline;
    if (one.node == rules.node) {
      auto other = regions.use(target.region, target.epoch);
      if (!other) return tl::unexpected(other.error());
      if (auto fit = fits(**other, remote_end, write ? "destination" : "source"); !fit)
        return tl::unexpected(fit.error());
      one.copy_target = std::make_shared<RegionUse>(std::move(*other));
    } else if (!rules.knows_node(one.node)) {
      return fail(ErrorCode::kNotFound,
                  "no node '{}' is known here: `nodes` lists the members; check gossip.members",
                  one.node);
    }
    admitted.push_back(std::move(one));
  }
  return admitted;
}

}  // namespace penstock
