#include "actors/node/admission.hpp"

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

Result<void> fits(const Region& region, std::uint64_t end, std::string_view side) {
  if (end <= region.bytes) return {};
  return fail(ErrorCode::kOutOfRange,
              "the {} ranges reach byte {} of region '{}', which has {} bytes", side, end,
              region.name, region.bytes);
}

/// A kernel reads the lists as they are: where nothing else will, they are not looked through for
/// neighbours.
PlanLimits limits_of(const TransferSpec& spec, const AdmissionRules& rules, RegionTable& regions) {
  const auto here = [&](const TransferTarget& target) {
    return target.node.empty() || target.node == rules.node;
  };
  if (!std::all_of(spec.targets.begin(), spec.targets.end(), here)) return rules.plan;
  const auto local = regions.use(spec.region);
  if (!local || !(*local)->on_gpu()) return rules.plan;
  return {std::numeric_limits<std::uint64_t>::max(), false};
}

/// Opens the events that the request names.
Result<void> open_events(const TransferSpec& spec, const AdmissionRules& rules, Admitted& one) {
  const auto open = [&](const std::string& handle, int gpu,
                        std::shared_ptr<GpuEvent>& event) -> Result<void> {
    if (!rules.open_event)
      return fail(ErrorCode::kUnsupported, "this service opens no CUDA events");
    auto opened = rules.open_event(gpu, handle);
    if (!opened) return tl::unexpected(opened.error());
    event = std::move(*opened);
    return {};
  };
  const Region& local = **one.local;
  if (!spec.start_after.empty()) {
    const Region& source =
        spec.direction == Direction::kRead && one.copy_target ? **one.copy_target : local;
    if (!source.on_gpu())
      return fail(ErrorCode::kInvalidArgument,
                  "start_after names an event of a GPU, and region '{}' is on none", source.name);
    if (auto opened = open(spec.start_after, source.memory->gpu(), one.start_after); !opened)
      return opened;
  }
  if (spec.record_event.empty()) return {};
  if (!one.copy_target || !(local.on_gpu() || (*one.copy_target)->on_gpu()))
    return fail(ErrorCode::kInvalidArgument,
                "record_event is for copies on this node with a GPU on one side: other transfers "
                "end by their event of the protocol");
  const Region& target = spec.direction == Direction::kRead ? local : **one.copy_target;
  const Region& source = spec.direction == Direction::kRead ? **one.copy_target : local;
  return open(spec.record_event, target.on_gpu() ? target.memory->gpu() : source.memory->gpu(),
              one.record_event);
}

}  // namespace

Result<std::vector<Admitted>> admit(const TransferSpec& spec, const AdmissionRules& rules,
                                    RegionTable& regions, TimePoint now) {
  if (spec.targets.empty())
    return fail(ErrorCode::kInvalidArgument, "a transfer needs at least one target");
  auto plan = Plan::make(spec.layout, limits_of(spec, rules, regions));
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
    Admitted& one = admitted.emplace_back();
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
    one.path = spec.path;
    one.deadline = deadline;
    if (one.node == rules.node) {
      auto other = regions.use(target.region, target.epoch);
      if (!other) return tl::unexpected(other.error());
      if (auto fit = fits(**other, remote_end, write ? "destination" : "source"); !fit)
        return tl::unexpected(fit.error());
      if (spec.path != PathChoice::kAuto)
        return fail(
            ErrorCode::kInvalidArgument,
            "path {} was asked for, and both regions, '{}' and '{}', are on this node: they "
            "are copied; ask for auto",
            kPathChoices[static_cast<unsigned char>(spec.path)], spec.region, target.region);
      one.copy_target = std::make_shared<RegionUse>(std::move(*other));
    } else if (auto takes = rules.takes_work(one.node); !takes) {
      return tl::unexpected(takes.error());
    }
    if (!spec.start_after.empty() || !spec.record_event.empty())
      if (auto opened = open_events(spec, rules, one); !opened)
        return tl::unexpected(opened.error());
  }
  return admitted;
}

}  // namespace penstock
