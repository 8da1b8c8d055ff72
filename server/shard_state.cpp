// What a shard has between two steps: for checkpoints, and frame by frame for its follower.
#include <cstring>

#include <psring/common/base/error.h>
#include <psring/server/shard.h>

namespace psring::server {
namespace {

using net::FrameHeader;
using net::FrameType;

/// What a frame of state has, in header.micro; the optimizer's slots come after kSlots.
enum Array : std::uint32_t { kValues = 0, kBefore = 1, kMaster = 2, kEnd = 3, kSlots = 4 };

constexpr std::size_t kRoundAt = optim::LossScaler::kBytes;
constexpr std::size_t kTotalAt = kRoundAt + sizeof(std::uint64_t);

}  // namespace

std::vector<optim::StatePart> Shard::state() {
  std::vector<optim::StatePart> parts;
  saved_.clear();
  if (options_.optimizer == nullptr) return parts;
  for (const Slot& slot : slots_) {
    const UnitLayout& unit = layout_.layout.units[slot.piece.unit];
    const Range whole{0, slot.piece.range.size()};
    if (device_ && unit.trained) {
      const auto kept = [&](const std::string& array, ConstElements values) {
        parts.push_back({&unit, slot.piece.range, array, saved_.emplace_back(values).values()});
      };
      kept(optim::kValues, device_->values(on_device(slot)));
      for (std::size_t s = 0; s < options_.optimizer->slots(); ++s)
        kept(optim::slot_array(s), device_->state(s, on_device(slot)));
      continue;
    }
    const bool copied = unit.trained && master_.size_bytes() > 0;
    parts.push_back({&unit, slot.piece.range, optim::kValues,
                     copied ? ConstElements(master(slot, whole)) : ConstElements(values(slot, slot.version))});
    if (!unit.trained) continue;
    const optim::Optimizer::State of_slot = state(slot, {0, slot.piece.range.size()});
    for (std::size_t s = 0; s < options_.optimizer->slots(); ++s)
      parts.push_back({&unit, slot.piece.range, optim::slot_array(s), of_slot.slot[s]});
  }
  return parts;
}

void Shard::snapshot(net::Peer to, std::vector<net::Outgoing>& out) {
  check(options_.optimizer != nullptr && options_.consistency.exact(), "only a shard with versions has a follower");
  FrameHeader header;
  header.type = FrameType::state;
  if (!layout_bytes_.empty()) {
    header.relayed = FrameType::layout;
    out.push_back({to, header, layout_bytes_});
    header.relayed = {};
  }
  for (const Slot& slot : slots_) {
    check(slot.waiters.empty() && (slot.pushes.empty() || slot.pushes[0].count == 0),
          "a shard's state is that between two steps");
    if (!slot.initialised) continue;
    header.unit = static_cast<std::uint32_t>(slot.piece.unit);
    header.set_range(slot.piece.range);
    header.version = slot.version;
    for (std::uint32_t array = 0; array < kSlots + options_.optimizer->slots(); ++array) {
      const Elements part = part_of_state(slot, slot.version, array);
      if (part.size() == 0) continue;
      header.micro = array;
      header.dtype = part.type();
      out.push_back({to, header, part.bytes()});
    }
  }
  const auto end = std::make_shared<std::vector<std::byte>>(kTotalAt);  // shared: the frame's holder
  const auto scale = scaler_.store();
  const std::uint64_t round = verdict_.round();
  const auto total = verdict_.last_total();
  std::memcpy(end->data(), scale.data(), scale.size());
  std::memcpy(end->data() + kRoundAt, &round, sizeof round);
  end->insert(end->end(), total.begin(), total.end());
  FrameHeader last;
  last.type = FrameType::state;
  last.micro = kEnd;
  if (skipped_) last.flags |= FrameHeader::kSkipped;
  out.push_back({to, last, *end, end});
}

/// Of a slot at `version`, one of its arrays; empty where it has none.
Elements Shard::part_of_state(const Slot& slot, std::uint64_t version, std::uint32_t array) {
  const Range whole{0, slot.piece.range.size()};
  if (array == kValues) return values(slot, version);
  if (!trained(slot)) return {};
  if (array == kBefore) return version > options_.first_version ? values(slot, version - 1) : Elements();
  if (array == kMaster) return Elements(master(slot, whole));
  if (array < kSlots || array - kSlots >= options_.optimizer->slots()) return {};
  return Elements(state(slot, whole).slot[array - kSlots]);
}

bool Shard::restore(const net::Message& message) {
  const FrameHeader& header = message.header;
  if (header.micro == kEnd) {
    restore_end(message);
    return true;
  }
  Slot& slot = slot_of(header);
  const Elements part = part_of_state(slot, header.version, header.micro);
  if (header.version < options_.first_version || header.dtype != part.type() || part.size() == 0 ||
      message.payload.size() != part.size_bytes())
    fail(ErrorKind::protocol, "{} bytes of state {} of unit {}, version {}, which cannot be", message.payload.size(),
         header.micro, header.unit, header.version);
  std::memcpy(part.data(), message.payload.data(), message.payload.size());
  if (header.micro == kValues) {
    slot.version = header.version;
    slot.initialised = true;
  }
  return false;
}

void Shard::restore_end(const net::Message& message) {
  if (message.payload.size() < kTotalAt)
    fail(ErrorKind::protocol, "the end of a state with {} bytes", message.payload.size());
  std::uint64_t round = 0;
  std::memcpy(&round, message.payload.data() + kRoundAt, sizeof round);
  verdict_.restore(round, message.payload.subspan(kTotalAt));
  scaler_.load(message.payload.first<optim::LossScaler::kBytes>());
  skipped_ = (message.header.flags & FrameHeader::kSkipped) != 0;
}

}  // namespace psring::server
