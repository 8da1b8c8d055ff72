#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/event_format.h>
#include <psring/common/base/packed_event.h>

namespace psring {
namespace {

template <class What>
constexpr bool kHasValues =
    std::is_same_v<What, UnitNames> || std::is_same_v<What, StepReport> || std::is_same_v<What, Evaluation>;

template <std::size_t kKind = 0>
decltype(Event::what) make_kind(std::size_t kind) {
  if constexpr (kKind < std::variant_size_v<decltype(Event::what)>)
    return kind == kKind ? decltype(Event::what)(std::in_place_index<kKind>) : make_kind<kKind + 1>(kind);
  fail(ErrorKind::protocol, "an event of kind {}", kind);
}

/// The roles that a peer of an event may have. Events of others are kept whole.
constexpr std::array<std::string_view, 4> kRoles{"", "worker", "server", "stage"};

template <std::size_t kNumber>
bool is_role(std::string_view role) {
  constexpr std::string_view kRole = kRoles[kNumber];
  return role.size() == kRole.size() && std::memcmp(role.data(), kRole.data(), kRole.size()) == 0;
}

/// Returns the role's number, or the number of roles. Compares with constants, without a call.
std::size_t number_of(std::string_view role) {
  return [&]<std::size_t... kNumbers>(std::index_sequence<kNumbers...>) {
    std::size_t found = kRoles.size();
    (void)((is_role<kNumbers>(role) && (found = kNumbers, true)) || ...);
    return found;
  }
  (std::make_index_sequence<kRoles.size()>());
}

/// Fills in the fields of one event.
class Packing {
 public:
  /// `names`: where names that are not static are kept; null: nowhere.
  Packing(PackedEvent& into, std::set<std::string, std::less<>>* names) : packed_(into), names_(names) {}

  /// Returns whether the event is packed: all fields fit, and its kind has no values.
  bool pack(const Event& event) {
    const EventHead head{event.start, event.duration, event.step, event.source};
    return std::visit([&](const auto& what) { return pack(head, what); }, event.what);
  }
  template <class What>
  bool pack(const EventHead& head, const What& what) {
    packed_ = {};
    packed_.pattern.source = std::bit_cast<std::uintptr_t>(head.source);
    packed_.pattern.state = static_cast<std::uint8_t>(kind_of<What>());
    packed_.start = head.start.time_since_epoch().count();
    packed_.count = static_cast<std::uint64_t>(std::max<std::int64_t>(0, head.duration.count()));
    packed_.step = fit(head.step);
    fill(what);
    return fits_ && !has_values_;
  }
  /// For an event that does not fit, and is kept at `place`.
  void keep(const Event& event, std::size_t place) {
    const unsigned flags = PackedEvent::kWhole | (fits_ ? 0U : PackedEvent::kLarge);
    packed_.pattern = {.source = packed_.pattern.source,
                       .state = static_cast<std::uint8_t>(event.what.index() | flags)};
    packed_.count = place;
  }

 private:
  std::uint32_t fit(std::uint64_t value) {
    fits_ = fits_ && value <= std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(value);
  }
  void name(std::string_view name) {
    fits_ = fits_ && name.size() <= std::numeric_limits<std::uint16_t>::max();
    packed_.pattern.name = name.data();
    packed_.pattern.name_size = static_cast<std::uint16_t>(name.size());
  }
  void range(Range range) {
    packed_.pattern.begin = fit(range.begin);
    packed_.pattern.size = fit(range.size());
  }
  void peer(PeerName peer) {
    const std::size_t role = number_of(peer.role);
    fits_ = fits_ && role < kRoles.size();
    packed_.pattern.role = static_cast<std::uint8_t>(role);
    packed_.pattern.rank = peer.rank;
  }
  void flag(bool set, std::uint8_t flag) {
    if (set) packed_.pattern.state |= flag;
  }

  void fill(const Activity& what) {
    name(what.name);
    packed_.pattern.unit = what.unit;
    packed_.pattern.begin = what.layer;
    packed_.pattern.bytes = fit(what.bytes);
    peer(what.peer);
  }
  void fill(const FrameMoved& what) {
    name(what.operation);
    flag(what.arrived, PackedEvent::kFlag);
    packed_.pattern.unit = what.unit;
    packed_.pattern.bytes = fit(what.bytes);
    range(what.range);
    peer(what.peer);
    fits_ = fits_ && packed_.count == 0;
    packed_.count = what.number;
    packed_.version = fit(what.version);
  }
  void fill(const Transfer& what) {
    name(what.name);
    range(what.units);
    packed_.pattern.bytes = fit(what.bytes);
  }
  void fill(const DeviceWork& what) {
    fits_ = fits_ && names_ != nullptr;
    if (names_ != nullptr) name(*names_->insert(what.name).first);
  }
  void fill(const Presence& what) {
    flag(what.here, PackedEvent::kFlag);
    flag(what.values == Presence::Values::gradients, PackedEvent::kFlag2);
    packed_.pattern.unit = what.unit;
    packed_.pattern.bytes = fit(what.bytes);
  }
  void fill(const GradientReady& what) {
    flag(what.averaged, PackedEvent::kFlag);
    range(what.units);
  }
  template <class What>
  requires kHasValues<What>
  void fill(const What& /*what*/) { has_values_ = true; }

  PackedEvent& packed_;
  std::set<std::string, std::less<>>* const names_;
  bool fits_ = true;
  bool has_values_ = false;
};

/// Reads the fields of one event.
class Unpacking {
 public:
  explicit Unpacking(const PackedEvent& packed) : packed_(packed) {}

  Event unpack() {
    Event event{Moment(Nanoseconds(packed_.start)), Nanoseconds(static_cast<std::int64_t>(packed_.count)), packed_.step,
                make_kind(packed_.kind()), std::bit_cast<std::source_location>(packed_.pattern.source)};
    if (std::holds_alternative<FrameMoved>(event.what)) event.duration = Nanoseconds{0};
    std::visit([this](auto& what) { read(what); }, event.what);
    return event;
  }

 private:
  std::string_view name() const { return {packed_.pattern.name, packed_.pattern.name_size}; }
  Range range() const { return {packed_.pattern.begin, std::size_t{packed_.pattern.begin} + packed_.pattern.size}; }
  PeerName peer() const { return {kRoles[packed_.pattern.role], packed_.pattern.rank}; }
  bool has(std::uint8_t flag) const { return (packed_.pattern.state & flag) != 0; }

  void read(Activity& what) const {
    what = {name(), packed_.pattern.unit, packed_.pattern.begin, peer(), packed_.pattern.bytes};
  }
  void read(FrameMoved& what) const {
    what = {has(PackedEvent::kFlag), packed_.pattern.unit, name(), peer(), packed_.count, range(),
            packed_.pattern.bytes,   packed_.version};
  }
  void read(Transfer& what) const { what = {name(), range(), packed_.pattern.bytes}; }
  void read(DeviceWork& what) const { what.name = name(); }
  void read(Presence& what) const {
    what = {has(PackedEvent::kFlag2) ? Presence::Values::gradients : Presence::Values::parameters, packed_.pattern.unit,
            has(PackedEvent::kFlag), packed_.pattern.bytes};
  }
  void read(GradientReady& what) const { what = {range(), has(PackedEvent::kFlag)}; }
  template <class What>
  requires kHasValues<What>
  void read(What& /*what*/) const {}

  const PackedEvent& packed_;
};

}  // namespace

bool EventPacker::pack(const Event& event, PackedEvent& into) { return Packing(into, nullptr).pack(event); }

template <FlatDetail What>
bool EventPacker::pack(const EventHead& head, const What& what, PackedEvent& into) {
  return Packing(into, nullptr).pack(head, what);
}
template bool EventPacker::pack(const EventHead& head, const Activity& what, PackedEvent& into);
template bool EventPacker::pack(const EventHead& head, const Transfer& what, PackedEvent& into);
template bool EventPacker::pack(const EventHead& head, const FrameMoved& what, PackedEvent& into);
template bool EventPacker::pack(const EventHead& head, const Presence& what, PackedEvent& into);
template bool EventPacker::pack(const EventHead& head, const GradientReady& what, PackedEvent& into);

void EventPacker::keep(const Event& event, PackedEvent& into) {
  Packing packing(into, &names_);
  if (packing.pack(event)) return;
  packing.keep(event, whole_.size());
  whole_.push_back(event);
}

Event EventPacker::unpack(const PackedEvent& packed) const {
  return packed.is_whole() ? whole_[packed.count] : Unpacking(packed).unpack();
}

}  // namespace psring
