#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/optim/mixed.h>
#include <psring/optim/norm.h>
#include <psring/optim/updater.h>
#include <psring/server/shard.h>

namespace psring::server {
namespace {

using net::FrameHeader;
using net::FrameType;
using net::Message;
using net::Role;

/// What one thread aggregates, updates and stores before it goes on: stays in its first-level cache.
constexpr std::size_t kBlock = 4096;

FrameHeader answer_to(const FrameHeader& asked, FrameType type) {
  FrameHeader header;
  header.type = type;
  header.unit = asked.unit;
  header.set_range(asked.range());
  header.step = asked.step;
  header.dest = asked.dest;
  header.flags = asked.flags & FrameHeader::kStartUp;
  return header;
}

void tell(const Staleness& of, FrameHeader& header) {
  const auto bounded = [](std::uint64_t value) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
  };
  header.staleness = bounded(of.staleness);
  header.lag = bounded(of.lag);
}

/// The text is cut to what transports copy.
net::Outgoing failed(const FrameHeader& asked, const std::string& line) {
  constexpr std::size_t kMost = 1024;
  const auto text = std::make_shared<const std::string>(line.substr(0, kMost));  // shared: the frame's holder
  return {asked.sender(), answer_to(asked, FrameType::failed), std::as_bytes(std::span(*text)), text};
}

/// A payload that outlives its message, in malloc's memory, which is used again.
struct Copy {
  Copy(std::vector<std::byte> held, MemoryLedger& booked_in) : bytes(std::move(held)), ledger(booked_in) {
    ledger.book(Category::communication, bytes.size());
  }
  ~Copy() { ledger.release(Category::communication, bytes.size()); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  const std::vector<std::byte> bytes;
  MemoryLedger& ledger;
};

/// What the workers pushed of one slot, as one gradient, a part at a time: made in f32, rounded once.
class Pushes {
 public:
  Pushes(const Aggregator& rule, std::span<const std::optional<Message>> pushes, std::size_t elements, DType type)
      : rule_(rule) {
    for (const auto& push : pushes)
      if (push) pushed_.emplace_back(push->payload.data(), elements, type);
    inputs_.resize(pushed_.size());
    if (type != DType::f32) widened_.resize((pushed_.size() + 1) * kElementsBlock);
  }

  void aggregate(Range part, Elements out) {
    if (out.type() == DType::f32) {
      for (std::size_t k = 0; k < inputs_.size(); ++k) inputs_[k] = pushed_[k].part(part).as<float>().data();
      return rule_.aggregate(inputs_, out.as<float>());
    }
    for (std::size_t begin = 0; begin < part.size(); begin += kElementsBlock) {
      const Range block{begin, std::min(part.size(), begin + kElementsBlock)};
      const auto room = [&](std::size_t k) { return std::span(widened_).subspan(k * kElementsBlock, block.size()); };
      for (std::size_t k = 0; k < inputs_.size(); ++k) {
        widen(pushed_[k].part(part).part(block), room(k));
        inputs_[k] = room(k).data();
      }
      rule_.aggregate(inputs_, room(inputs_.size()));
      narrow(room(inputs_.size()), out.part(block));
    }
  }

 private:
  const Aggregator& rule_;
  std::vector<ConstElements> pushed_;  ///< in worker order
  std::vector<const float*> inputs_;
  std::vector<float> widened_;  ///< a block of each, and of the result
};

}  // namespace

Shard::Shard(const ShardOptions& options, Parallel& parallel, MemoryLedger& ledger)
    : options_(options),
      parallel_(parallel),
      ledger_(ledger),
      left_(options.workers, false),
      staleness_(options.workers),
      verdict_(options.rank, options.servers),
      scaler_(options.loss_scaler) {
  check(options.aggregator != nullptr, "a shard needs its rule");
  check((options.optimizer == nullptr) == (options.schedule == nullptr), "an optimizer and its schedule go together");
  check(options.device == nullptr ||
            (options.optimizer != nullptr && options.aggregator->sum_times(1) && !options.remedy.keeps_given()),
        "what no device does");
}

void Shard::on_message(Message message, std::vector<net::Outgoing>& replies) {
  const FrameHeader asked = message.header;
  if (asked.type == FrameType::failed) {
    if (asked.sender_role != Role::server) return;
    fail(ErrorKind::protocol, "{}: {}", to_string(asked.sender()),
         std::string(reinterpret_cast<const char*>(message.payload.data()), message.payload.size()));
  }
  const bool first_layout = layout_bytes_.empty();
  try {
    handle(std::move(message), replies);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::protocol && error.kind() != ErrorKind::data) throw;
    replies.push_back(failed(asked, error.what()));
  }
  if (first_layout && !layout_bytes_.empty()) load_saved();  // what is wrong with it is no fault of the sender's
}

void Shard::handle(Message message, std::vector<net::Outgoing>& replies) {
  switch (message.header.type) {
    case FrameType::layout:
      return on_layout(message, replies);
    case FrameType::initial:
      return on_initial(message, replies);
    case FrameType::push:
    case FrameType::push_pull:
      return on_push(std::move(message), replies);
    case FrameType::pull:
      return on_pull(message, replies);
    case FrameType::save:
      return on_save(message.header);
    case FrameType::saved:
      return on_saved(message.header);
    case FrameType::leave:
      return on_leave(message.header, replies);
    case FrameType::verdict:
      if (!by_verdict()) fail(ErrorKind::protocol, "a verdict that nobody asked for");
      if (const auto total = verdict_.on_message(message, replies)) on_total(*total, replies);
      return;
    default:
      fail(ErrorKind::protocol, "a server takes no {} frames", to_string(message.header.type));
  }
}

void Shard::on_layout(const Message& message, std::vector<net::Outgoing>& replies) {
  check_worker(message.header);
  std::vector<std::byte> bytes(message.payload.begin(), message.payload.end());
  if (layout_bytes_.empty()) {
    net::LayoutMessage layout = net::decode_layout(bytes);
    if (layout.layout.owners != options_.servers)
      fail(ErrorKind::protocol, "a layout cut among {} servers, the job has {}", layout.layout.owners,
           options_.servers);
    if (options_.optimizer == nullptr && layout.layout.pushes > 1)
      fail(ErrorKind::protocol, "a layout of {} micro-batches, which a server without an optimizer does not add up",
           layout.layout.pushes);
    if (const std::size_t needed = bytes_for(layout.layout); needed > options_.memory_bytes)
      fail(ErrorKind::protocol, "a layout that takes {} MiB of a server, {} MiB are allowed", needed >> 20,
           options_.memory_bytes >> 20);
    take_layout(std::move(layout));
    layout_bytes_ = std::move(bytes);
  } else if (layout_bytes_ != bytes) {
    fail(ErrorKind::protocol, "{} describes another model than the first worker did",
         to_string(message.header.sender()));
  }
  replies.push_back(layout_ok(message.header));
}

/// Says where its worker goes on, and how losses are scaled there.
net::Outgoing Shard::layout_ok(const FrameHeader& asked) const {
  FrameHeader header = answer_to(asked, FrameType::layout_ok);
  header.version = goes_on_at(asked.sender_rank);
  if (!scaler_.active()) return {asked.sender(), header, {}};
  const auto scale = std::make_shared<const std::array<std::byte, optim::LossScaler::kBytes>>(scaler_.store());
  return {asked.sender(), header, *scale, scale};  // shared: the frame's holder
}

/// The least over trained pieces: of their versions or, where each push is an update, of the worker's clocks.
std::uint64_t Shard::goes_on_at(std::uint32_t worker) const {
  std::optional<std::uint64_t> least;
  for (const Slot& slot : slots_) {
    if (!trained(slot)) continue;
    const std::uint64_t at = slot.workers.empty() ? slot.version : slot.workers[worker].clock;
    least = std::min(least.value_or(at), at);
  }
  return least.value_or(options_.first_version);
}

void Shard::begin_epoch(std::uint32_t workers) {
  check(options_.optimizer != nullptr && !options_.optimizer->layerwise(),
        "a job whose shards do not keep two whole versions cannot go on in a new epoch");
  if (workers != options_.workers) {
    check((options_.pushers == 0 || options_.pushers == options_.workers) && options_.consistency.exact(),
          "a shard for other workers than before");
    options_.workers = workers;
    options_.pushers = 0;
  }
  for (Slot& slot : slots_) {
    slot.waiters.clear();
    forget_pushes(slot);
    for (Slot::Pushed& pushed : slot.pushes) pushed.by_worker.resize(workers);
  }
  aggregated_ = 0;
  summing_ = false;
  verdict_.begin_epoch();
  save_.reset();
  written_.clear();
}

std::size_t Shard::bytes_for(const Layout& layout) const {
  const std::size_t parameter = size_bytes(layout.parameter_type);
  const std::size_t gradient = size_bytes(layout.gradient_type);
  const std::size_t trained = layout.trained_elements() / layout.owners;
  if (options_.optimizer == nullptr) return gradient * trained + book_bytes(layout);
  const std::size_t bytes = parameter + (options_.optimizer->slots() + (keeps_master(layout) ? 1 : 0)) * sizeof(float) +
                            (keeps_mean(layout) ? gradient : 0) +
                            (options_.consistency.exact() ? 0 : options_.workers * parameter);
  return bytes * trained + parameter * (layout.elements() / layout.owners) + book_bytes(layout);
}

/// What the pieces take beside their elements: each one's pushes that are waited for.
std::size_t Shard::book_bytes(const Layout& layout) const {
  const std::size_t each = sizeof(Slot::Pushed) + options_.workers * sizeof(std::optional<Message>);
  std::size_t bytes = 0;
  for (const UnitLayout& unit : layout.units) {
    const std::size_t pieces = round_up(unit.elements / layout.owners, layout.piece_elements) / layout.piece_elements;
    bytes += pieces * (sizeof(Slot) + (unit.trained ? layout.pushes * each : 0));
  }
  return bytes;
}

bool Shard::keeps_master(const Layout& layout) const {
  return options_.optimizer != nullptr && options_.master_copy && layout.parameter_type != DType::f32;
}

void Shard::take_layout(net::LayoutMessage layout) {
  layout_ = std::move(layout);
  unit_slots_.assign(layout_.layout.units.size(), {0, 0});
  for (const Piece& piece : make_pieces(layout_.layout)) {
    if (piece.owner != options_.rank) continue;
    auto& [first, last] = unit_slots_[piece.unit];
    if (first == last) first = slots_.size();
    slots_.push_back({.piece = piece, .version = options_.first_version});
    last = slots_.size();
    if (!trained(slots_.back())) continue;
    slots_.back().pushes = {layout_.layout.pushes, {0, std::vector<std::optional<Message>>(options_.workers)}};
    for (std::size_t w = 0; options_.consistency.each_push_updates && w < options_.workers; ++w)
      slots_.back().workers.push_back({.clock = options_.first_version, .given = options_.first_version});
    ++updates_due_;
  }
  elements_ = layout_.layout.elements() / layout_.layout.owners;
  const std::size_t trained = layout_.layout.trained_elements() / layout_.layout.owners;
  const std::size_t gradient_bytes = trained * size_bytes(layout_.layout.gradient_type);
  if (options_.optimizer != nullptr) {
    const std::size_t parameter = size_bytes(layout_.layout.parameter_type);
    parameters_[0] = Buffer(elements_ * parameter, Category::parameters, ledger_);
    parameters_[1] = Buffer(trained * parameter, Category::parameters, ledger_);
    if (options_.device != nullptr) {
      std::size_t largest = 0;
      for (const Slot& slot : slots_) largest = std::max(largest, slot.piece.range.size());
      device_ = std::make_unique<DeviceUpdates>(*options_.device, ledger_,
                                                DeviceUpdates::Options{.rule = options_.optimizer,
                                                                       .parameter_type = layout_.layout.parameter_type,
                                                                       .gradient_type = layout_.layout.gradient_type,
                                                                       .master_copy = keeps_master(layout_.layout),
                                                                       .elements = trained,
                                                                       .largest = largest,
                                                                       .keeps_gradients = keeps_mean(layout_.layout)});
    } else {
      if (keeps_master(layout_.layout)) master_ = Buffer(trained * sizeof(float), Category::optimizer, ledger_);
      for (std::size_t s = 0; s < options_.optimizer->slots(); ++s)
        state_[s] = Buffer(trained * sizeof(float), Category::optimizer, ledger_);
      if (keeps_mean(layout_.layout)) mean_ = Buffer(gradient_bytes, Category::gradients, ledger_);
    }
    if (!options_.consistency.exact()) given_.resize(options_.workers);
    if (options_.remedy.keeps_given())
      for (Buffer& kept : given_) kept = Buffer(trained * parameter, Category::optimizer, ledger_);
  } else {
    parameters_[0] = Buffer(gradient_bytes, Category::gradients, ledger_);
  }
  for (Slot& slot : slots_) {
    slot.initialised = options_.optimizer == nullptr || !layout_.initial_by_worker;
    if (options_.optimizer == nullptr || !slot.initialised || options_.saved) continue;
    std::vector<float> start(slot.piece.range.size());
    initialise(layout_.layout.units[slot.piece.unit], slot.piece.range, layout_.seed, start);
    begin_with(slot, start);
  }
}

void Shard::begin_with(const Slot& slot, std::span<const float> start) {
  narrow(start, values(slot, slot.version));
  if (!trained(slot)) return;
  if (device_) device_->begin_with(on_device(slot), start);
  if (master_.size_bytes() > 0) copy(start, Elements(master(slot, {0, start.size()})));
  for (std::size_t w = 0; w < given_.size(); ++w)
    if (given_[w].size_bytes() > 0) narrow(start, given(slot, w));
}

void Shard::load_saved() {
  if (!options_.saved) return;
  for (const Slot& slot : slots_) {
    const UnitLayout& unit = layout_.layout.units[slot.piece.unit];
    std::vector<float> start(slot.piece.range.size());
    options_.saved(unit, slot.piece.range, optim::kValues, start);
    begin_with(slot, start);
    for (std::size_t s = 0; trained(slot) && s < options_.optimizer->slots(); ++s) {
      if (!device_) {
        options_.saved(unit, slot.piece.range, optim::slot_array(s), state(slot, {0, start.size()}).slot[s]);
        continue;
      }
      options_.saved(unit, slot.piece.range, optim::slot_array(s), start);
      device_->begin_with_state(s, on_device(slot), start);
    }
  }
}

void Shard::check_worker(const FrameHeader& header) const {
  if (header.sender_role != Role::worker || header.sender_rank >= options_.workers)
    fail(ErrorKind::protocol, "{} is no worker of this job", to_string(header.sender()));
}

void Shard::on_initial(const Message& message, std::vector<net::Outgoing>& replies) {
  Slot& slot = find(message);
  if (message.header.sender_rank != 0) fail(ErrorKind::protocol, "initial values come from worker 0");
  if (slot.initialised) {
    if (!layout_.initial_by_worker) fail(ErrorKind::protocol, "initial values after the start");
    return;  // again, of a worker that began anew: it has not heard that they were taken
  }
  begin_with(slot, ConstElements(message.payload.data(), slot.piece.range.size(), DType::f32).as<float>());
  slot.initialised = true;
  answer_waiters(slot, replies);
}

Shard::Slot& Shard::slot_of(const FrameHeader& header) {
  if (layout_bytes_.empty()) fail(ErrorKind::protocol, "{} before any layout", to_string(header.type));
  if (header.unit >= unit_slots_.size()) fail(ErrorKind::protocol, "no unit {}", header.unit);
  const auto [first, last] = unit_slots_[header.unit];
  const auto begin = slots_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(last);
  const auto at = std::lower_bound(begin, end, header.begin,
                                   [](const Slot& slot, std::size_t b) { return slot.piece.range.begin < b; });
  if (at == end || at->piece.range != header.range())
    fail(ErrorKind::protocol, "no piece [{}, {}) of unit {} here", header.begin, header.end, header.unit);
  return *at;
}

Shard::Slot& Shard::find(const Message& message) {
  const FrameHeader& header = message.header;
  check_worker(header);
  Slot& slot = slot_of(header);
  const Layout& layout = layout_.layout;
  const DType answered = options_.optimizer == nullptr ? layout.gradient_type : layout.parameter_type;
  const DType expected = header.type == FrameType::initial ? DType::f32
                         : header.type == FrameType::pull  ? answered
                                                           : layout.gradient_type;
  if (header.dtype != expected)
    fail(ErrorKind::protocol, "elements of type {}, {} expected", name_of(header.dtype), name_of(expected));
  const bool pushed = header.type == FrameType::push || header.type == FrameType::push_pull;
  const optim::Codec* const codec = pushed ? options_.codec : nullptr;
  if (header.encoding != (codec != nullptr ? codec->encoding() : net::Encoding::dense))
    fail(ErrorKind::protocol, "a {} in encoding {}", to_string(header.type), static_cast<int>(header.encoding));
  const std::size_t carried = header.type == FrameType::pull ? 0
                              : codec != nullptr             ? codec->bytes(header.range().size())
                                                             : header.range().size() * size_bytes(expected);
  if (message.payload.size() != carried)
    fail(ErrorKind::protocol, "a {} with {} bytes of payload, {} expected", to_string(header.type),
         message.payload.size(), carried);
  const std::size_t answer = header.range().size() * size_bytes(answered);
  if (!message.reply_space.empty() && message.reply_space.size() != answer)
    fail(ErrorKind::protocol, "space of {} bytes for an answer of {}", message.reply_space.size(), answer);
  return slot;
}

/// That a pull can be answered, now or later: where it is answered exactly, what is past is gone.
void Shard::check_there(const Slot& slot, std::uint64_t wanted) const {
  if (!options_.consistency.exact() || wanted >= slot.version) return;
  const bool kept = options_.optimizer != nullptr && trained(slot) && wanted >= options_.first_version;
  if (!kept || wanted + 1 < slot.version)
    fail(ErrorKind::protocol, "a pull of version {} of unit {}, which is at {}", wanted, slot.piece.unit, slot.version);
}

/// Keeps what waits bounded: a worker that asks anew has given up what it asked for before.
void Shard::wait(Slot& slot, Waiter waiter) {
  std::erase_if(slot.waiters, [&](const Waiter& other) { return other.peer == waiter.peer; });
  slot.waiters.push_back(std::move(waiter));
}

void Shard::on_push(Message message, std::vector<net::Outgoing>& replies) {
  Slot& slot = find(message);
  const FrameHeader header = message.header;
  if (!trained(slot)) fail(ErrorKind::protocol, "a push of unit {}, which is not trained", header.unit);
  if (header.micro >= slot.pushes.size())
    fail(ErrorKind::protocol, "a push of micro-batch {} of {}", header.micro, slot.pushes.size());
  const std::uint64_t due = slot.workers.empty() ? slot.version : slot.workers[header.sender_rank].clock;
  if (header.step > due) fail(ErrorKind::protocol, "a push of step {}, where step {} is due", header.step, due);
  if (left_[header.sender_rank]) fail(ErrorKind::protocol, "a push of {}, which has left", to_string(header.sender()));
  if (!slot.initialised) fail(ErrorKind::protocol, "a push before the initial values are there");
  if (header.type == FrameType::push_pull) {
    check_there(slot, header.step + 1);
    Waiter waiter{header.sender(), header, message.reply_space, message.holder, false};
    waiter.header.version = header.step + 1;
    wait(slot, std::move(waiter));
  }
  Slot::Pushed& pushed = slot.pushes[header.micro];
  std::optional<Message>& mine = pushed.by_worker[header.sender_rank];
  const bool acknowledged = (header.flags & FrameHeader::kWantAck) != 0;
  const bool repeated = header.step < due || header.micro < slot.micro || mine.has_value();
  if (!repeated) {
    if (options_.codec != nullptr) decode_payload(message);
    mine = std::move(message);
    ++pushed.count;
    if (!slot.workers.empty())
      count_push(slot, header.sender_rank);
    else if (options_.consistency.backups > 0)
      staleness_[header.sender_rank].add({});
  } else if (options_.consistency.backups > 0) {
    ++staleness_[header.sender_rank].dropped;
  }
  if (acknowledged) {
    FrameHeader answer = answer_to(header, FrameType::push_ack);
    answer.version = slot.version;
    if (!slot.workers.empty()) tell(slot.workers[header.sender_rank].last, answer);
    replies.push_back({header.sender(), answer, {}});
  }
  if (!repeated) {
    if (header.micro == slot.micro && micro_complete(slot)) return complete(slot, replies);
    if (acknowledged && options_.codec == nullptr) copy_payload(*mine);
  }
  answer_waiters(slot, replies);
}

/// The push is the next update.
void Shard::count_push(Slot& slot, std::size_t worker) {
  Slot::Progress& progress = slot.workers[worker];
  progress.last = {slot.version - progress.given, progress.clock - slowest(slot)};
  check(!options_.consistency.bound || progress.last.lag <= *options_.consistency.bound, "worker {} is {} steps ahead",
        worker, progress.last.lag);
  if (std::none_of(left_.begin(), left_.end(), [](bool left) { return left; })) staleness_[worker].add(progress.last);
  ++progress.clock;
  of_ = worker;
}

/// The clock of the slowest worker that is still at it.
std::uint64_t Shard::slowest(const Slot& slot) const {
  if (slot.workers.empty()) return slot.version;
  std::uint64_t least = kFinalVersion;
  for (std::size_t w = 0; w < slot.workers.size(); ++w)
    if (!left_[w]) least = std::min(least, slot.workers[w].clock);
  return least;
}

void Shard::on_leave(const FrameHeader& header, std::vector<net::Outgoing>& replies) {
  check_worker(header);
  if (!options_.consistency.each_push_updates) fail(ErrorKind::protocol, "nobody leaves under bsp");
  left_[header.sender_rank] = true;
  for (Slot& slot : slots_) answer_waiters(slot, replies);
}

/// Its sender may overwrite what it pushed, and the payload may lie in the sender's memory.
void Shard::copy_payload(Message& message) {
  hold(std::vector(message.payload.begin(), message.payload.end()), message);
}

/// As if it had been pushed as it is. What a codec reads where there is padding (a sign is never zero) is none of it.
void Shard::decode_payload(Message& message) {
  const FrameHeader& header = message.header;
  std::vector<std::byte> values(header.range().size() * sizeof(float));
  const auto read = Elements(values.data(), header.range().size(), DType::f32).as<float>();
  options_.codec->decode(
      message.payload, {options_.seed, header.step, header.micro, header.unit, header.begin, header.sender_rank}, read);
  clear_padding(layout_.layout.units[header.unit], header.range(), read);
  hold(std::move(values), message);
}

void Shard::hold(std::vector<std::byte> bytes, Message& message) {
  const auto copy = std::make_shared<const Copy>(std::move(bytes), ledger_);
  message.payload = copy->bytes;
  message.holder = copy;
}

void Shard::on_pull(Message& message, std::vector<net::Outgoing>& replies) {
  Slot& slot = find(message);
  if (!trained(slot) && (options_.optimizer == nullptr || message.header.version > slot.version))
    fail(ErrorKind::protocol, "a pull of version {} of unit {}, which is not trained", message.header.version,
         message.header.unit);
  check_there(slot, message.header.version);
  wait(slot, {message.header.sender(), message.header, message.reply_space, std::move(message.holder), false});
  answer_waiters(slot, replies);
}

void Shard::on_save(const FrameHeader& header) {
  check_worker(header);
  if (header.sender_rank != 0) fail(ErrorKind::protocol, "worker 0 says when to save");
  if (layout_bytes_.empty()) fail(ErrorKind::protocol, "{} before any layout", to_string(header.type));
  if (options_.save_every == 0 || (options_.optimizer == nullptr && header.version == 0))
    fail(ErrorKind::protocol, "there is nothing to save here");
  if (header.version >= options_.workers)
    fail(ErrorKind::protocol, "a save that waits for {} other workers of {}", header.version, options_.workers);
  if (std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.version > header.step; }))
    fail(ErrorKind::protocol, "version {} is past, and cannot be saved", header.step);
  save_ = header;
}

void Shard::on_saved(const FrameHeader& header) {
  check_worker(header);
  if (options_.save_every == 0 || header.sender_rank == 0) fail(ErrorKind::protocol, "nobody asked for what is saved");
  written_[header.sender_rank] = header.step;
}

std::optional<std::uint64_t> Shard::save_due() const {
  if (!save_) return std::nullopt;
  const auto written =
      std::ranges::count_if(written_, [&](const auto& by_worker) { return by_worker.second == save_->step; });
  if (std::cmp_less(written, save_->version)) return std::nullopt;
  if (std::any_of(slots_.begin(), slots_.end(),
                  [&](const Slot& slot) { return trained(slot) && slot.version != save_->step; }))
    return std::nullopt;
  return save_->step;
}

void Shard::saved(std::vector<net::Outgoing>& replies) {
  FrameHeader header = answer_to(*save_, FrameType::saved);
  if (skipped_) header.flags |= FrameHeader::kSkipped;
  replies.push_back({save_->sender(), header, {}});
  save_.reset();
}

bool Shard::by_verdict() const {
  return options_.optimizer != nullptr && (by_sum() || options_.optimizer->layerwise());
}

optim::Update Shard::update_for(const Slot& slot) const {
  if (!of_)
    return {slot.version + 1 - scaler_.skipped(), options_.schedule->lr(options_.lr, slot.version), gradient_scale_};
  const std::uint64_t made = slot.version - options_.first_version;
  float lr = options_.schedule->lr(options_.lr, options_.first_version + made / options_.workers);
  if (options_.remedy.kind == StalenessRemedy::Kind::scale_lr)
    lr /= 1 + static_cast<float>(slot.workers[*of_].last.staleness);
  return {slot.version + 1, lr, gradient_scale_};
}

/// What a worker was given of the slot.
Elements Shard::given(const Slot& slot, std::size_t worker) {
  return given_[worker].elements(layout_.layout.parameter_type).subspan(slot.piece.offset, slot.piece.range.size());
}

Elements Shard::values(const Slot& slot, std::uint64_t version) {
  const Layout& layout = layout_.layout;
  const Elements all = options_.optimizer == nullptr
                           ? parameters_[0].elements(layout.gradient_type)
                           : parameters_[trained(slot) ? version % 2 : 0].elements(layout.parameter_type);
  return all.subspan(slot.piece.offset, slot.piece.range.size());
}

std::span<float> Shard::master(const Slot& slot, Range part) {
  if (master_.size_bytes() == 0) return {};
  return master_.as<float>().subspan(slot.piece.offset + part.begin, part.size());
}

/// The parameters in f32, wherever they are kept so.
std::span<float> Shard::weights(const Slot& slot) {
  return master_.size_bytes() > 0 ? master(slot, {0, slot.piece.range.size()}) : values(slot, slot.version).as<float>();
}

optim::Optimizer::State Shard::state(const Slot& slot, Range part) {
  optim::Optimizer::State state;
  for (std::size_t s = 0; s < options_.optimizer->slots(); ++s)
    state.slot[s] = state_[s].as<float>().subspan(slot.piece.offset + part.begin, part.size());
  return state;
}

Elements Shard::mean(const Slot& slot) {
  return mean_.elements(layout_.layout.gradient_type).subspan(slot.piece.offset, slot.piece.range.size());
}

/// The update of a part of the slot, from its version to `out`.
void Shard::apply(const Slot& slot, Range part, ConstElements gradient, Elements out) {
  optim::apply(*options_.optimizer, update_for(slot),
               {.parameters = values(slot, slot.version).part(part),
                .gradient = gradient,
                .master = master(slot, part),
                .state = state(slot, part),
                .out = out});
}

bool Shard::micro_complete(const Slot& slot) const {
  if (slot.micro >= slot.pushes.size()) return false;
  const Slot::Pushed& pushed = slot.pushes[slot.micro];
  const std::size_t all = options_.pushers > 0 ? options_.pushers : options_.workers;
  if (!options_.consistency.update_due(pushed.count, all)) return false;
  return !kept_for_checkpoint(slot.version) || pushed.by_worker[0].has_value();
}

/// Where updates do not wait for all, none is made of a version that is to be saved before worker 0 has saved it: then
/// it pushes.
bool Shard::kept_for_checkpoint(std::uint64_t version) const {
  return options_.consistency.backups > 0 && options_.save_every > 0 && version > options_.first_version &&
         version % options_.save_every == 0;
}

/// The pushes of a micro-batch are all there: takes them, and those of later ones that are all there, too. With the
/// last the step's gradient is complete.
void Shard::complete(Slot& slot, std::vector<net::Outgoing>& replies) {
  if (!keeps_mean(layout_.layout)) {
    update_now(slot);
    return finish_version(slot, replies);
  }
  for (; micro_complete(slot); ++slot.micro) add_to_mean(slot);
  if (slot.micro < slot.pushes.size()) return answer_waiters(slot, replies);
  if (!by_verdict()) {
    update_now(slot);
    return finish_version(slot, replies);
  }
  if (++aggregated_ < updates_due_) return;
  aggregated_ = 0;
  summing_ = by_sum();
  if (!summing_) return apply_all(replies);
  contribute(square_sums(), replies);
}

/// The pushes of one micro-batch.
void Shard::aggregate_on_device(const Slot& slot, std::size_t micro) {
  std::vector<ConstElements> pushed;
  for (const auto& push : slot.pushes[micro].by_worker)
    if (push) pushed.emplace_back(push->payload.data(), slot.piece.range.size(), layout_.layout.gradient_type);
  device_->aggregate(pushed, *options_.aggregator->sum_times(pushed.size()), on_device(slot), micro > 0);
}

/// Aggregates, updates and stores a block at a time, while it is in cache.
void Shard::update_now(Slot& slot) {
  const Elements next = values(slot, slot.version + 1);
  const std::uint64_t slowest = of_ ? this->slowest(slot) : slot.version + 1;
  std::vector<std::byte*> stores;
  for (Waiter& waiter : slot.waiters) {
    waiter.stored = !waiter.space.empty() && options_.consistency.answers(slowest, waiter.header.version);
    if (waiter.stored) stores.push_back(waiter.space.data());
  }
  if (device_) {
    if (!keeps_mean(layout_.layout)) aggregate_on_device(slot, 0);
    device_->apply(update_for(slot), on_device(slot), next);
    for (std::byte* store : stores) std::memcpy(store, next.data(), next.size_bytes());
    return;
  }
  parallel_.for_slices(slot.piece.range.size(), kBlock, [&](Range slice) {
    Pushes pushes(*options_.aggregator, slot.pushes[0].by_worker, slot.piece.range.size(),
                  layout_.layout.gradient_type);
    float memory[kBlock];
    for (std::size_t begin = slice.begin; begin < slice.end; begin += kBlock) {
      const Range block{begin, std::min(slice.end, begin + kBlock)};
      const Elements out = next.part(block);
      if (options_.optimizer == nullptr) {
        pushes.aggregate(block, out);
      } else if (mean_.size_bytes() > 0) {
        apply(slot, block, mean(slot).part(block), out);
      } else {
        const Elements gradient(reinterpret_cast<std::byte*>(memory), block.size(), layout_.layout.gradient_type);
        pushes.aggregate(block, gradient);
        if (options_.remedy.keeps_given()) compensate(slot, block, gradient);
        apply(slot, block, gradient, out);
      }
      const std::size_t at = begin * size_bytes(out.type());
      for (std::byte* store : stores) std::memcpy(store + at, out.data(), out.size_bytes());
    }
  });
}

/// See StalenessRemedy::Kind::compensate.
void Shard::compensate(const Slot& slot, Range part, Elements gradient) {
  const auto lambda = static_cast<float>(options_.remedy.lambda);
  float g[kBlock];
  float now[kBlock];
  float then[kBlock];
  const std::size_t n = part.size();
  widen(gradient, std::span(g, n));
  widen(values(slot, slot.version).part(part), std::span(now, n));
  widen(given(slot, *of_).part(part), std::span(then, n));
  for (std::size_t i = 0; i < n; ++i) g[i] += lambda * g[i] * g[i] * (now[i] - then[i]);
  narrow(std::span<const float>(g, n), gradient);
}

/// The mean of the workers' gradients of slot.micro, rounded once; with those before it the sum is rounded again.
void Shard::add_to_mean(Slot& slot) {
  Slot::Pushed& pushed = slot.pushes[slot.micro];
  if (device_) {
    aggregate_on_device(slot, slot.micro);
    for (auto& push : pushed.by_worker) push.reset();
    return;
  }
  const Elements out = mean(slot);
  parallel_.for_slices(out.size(), kBlock, [&](Range slice) {
    Pushes pushes(*options_.aggregator, pushed.by_worker, out.size(), out.type());
    if (slot.micro == 0) return pushes.aggregate(slice, out.part(slice));
    float memory[kBlock];
    for (std::size_t begin = slice.begin; begin < slice.end; begin += kBlock) {
      const Range block{begin, std::min(slice.end, begin + kBlock)};
      const Elements gradient(reinterpret_cast<std::byte*>(memory), block.size(), out.type());
      pushes.aggregate(block, gradient);
      add(out.part(block), gradient);
    }
  });
  for (auto& push : pushed.by_worker) push.reset();
}

Verdict::Sums Shard::square_sums() {
  Verdict::Sums sums(1);
  if (device_)
    device_->add_square_sums(sums[0]);
  else
    for_each_trained([&](const Slot& slot) { optim::add_square_sum(mean(slot), sums[0]); });
  return sums;
}

/// Two sums for each tensor of each unit in order: its parameters' and its direction's squares.
Verdict::Sums Shard::layerwise_sums() {
  Verdict::Sums sums;
  const auto& units = layout_.layout.units;
  for (const std::size_t unit : layout_.layout.trained()) {
    std::vector<optim::TensorSums> of_unit(units[unit].tensors.size());
    for (std::size_t s = unit_slots_[unit].first; s < unit_slots_[unit].second; ++s) {
      const Slot& slot = slots_[s];
      optim::merge(of_unit,
                   optim::layerwise_sums(units[unit].tensors, slot.piece.range, weights(slot), mean(slot).as<float>()));
    }
    for (const optim::TensorSums& tensor : of_unit) {
      sums.push_back(tensor.parameters);
      sums.push_back(tensor.direction);
    }
  }
  return sums;
}

void Shard::contribute(const Verdict::Sums& sums, std::vector<net::Outgoing>& replies) {
  if (const auto total = verdict_.contribute(sums, replies)) on_total(*total, replies);
}

void Shard::on_total(const Verdict::Sums& total, std::vector<net::Outgoing>& replies) {
  if (!summing_) return scale_all(total, replies);
  summing_ = false;
  const float loss_scale = scaler_.scale();
  skipped_ = scaler_.active() && !std::isfinite(total.at(0).value());
  if (scaler_.active()) scaler_.finished(!skipped_);
  if (skipped_) return skip_all(replies);
  gradient_scale_ =
      options_.clip_norm > 0 ? optim::clip_scale(total.at(0), options_.clip_norm, loss_scale) : 1 / loss_scale;
  apply_all(replies);
}

void Shard::skip_all(std::vector<net::Outgoing>& replies) {
  for_each_trained([&](Slot& slot) {
    copy(values(slot, slot.version), values(slot, slot.version + 1));
    finish_version(slot, replies);
  });
}

void Shard::apply_all(std::vector<net::Outgoing>& replies) {
  for_each_trained([&](const Slot& slot) {
    if (device_) return device_->apply(update_for(slot), on_device(slot), values(slot, slot.version + 1));
    const Elements out = options_.optimizer->layerwise() ? mean(slot) : values(slot, slot.version + 1);
    parallel_.for_slices(slot.piece.range.size(), kBlock,
                         [&](Range slice) { apply(slot, slice, mean(slot).part(slice), out.part(slice)); });
  });
  if (options_.optimizer->layerwise()) return contribute(layerwise_sums(), replies);
  for_each_trained([&](Slot& slot) { finish_version(slot, replies); });
}

void Shard::scale_all(const Verdict::Sums& total, std::vector<net::Outgoing>& replies) {
  const auto& units = layout_.layout.units;
  std::size_t at = 0;
  for (const std::size_t unit : layout_.layout.trained()) {
    std::vector<optim::TensorSums> sums(units[unit].tensors.size());
    for (optim::TensorSums& tensor : sums) {
      tensor.parameters = total.at(at++);
      tensor.direction = total.at(at++);
    }
    const std::vector<float> ratios = optim::trust_ratios(sums);
    for (std::size_t s = unit_slots_[unit].first; s < unit_slots_[unit].second; ++s) {
      Slot& slot = slots_[s];
      const Elements next = values(slot, slot.version + 1);
      const std::span<float> before = weights(slot);
      const std::span<float> after = master_.size_bytes() > 0 ? before : next.as<float>();
      optim::scale_layerwise(update_for(slot).lr, units[unit].tensors, slot.piece.range, ratios, before,
                             mean(slot).as<float>(), after);
      if (master_.size_bytes() > 0) narrow(after, next);
    }
  }
  for_each_trained([&](Slot& slot) { finish_version(slot, replies); });
}

void Shard::finish_version(Slot& slot, std::vector<net::Outgoing>& replies) {
  ++slot.version;
  of_.reset();
  forget_pushes(slot);
  answer_waiters(slot, replies);
}

void Shard::forget_pushes(Slot& slot) {
  slot.micro = 0;
  for (Slot::Pushed& pushed : slot.pushes) {
    pushed.count = 0;
    for (auto& push : pushed.by_worker) push.reset();
  }
}

void Shard::answer_waiters(Slot& slot, std::vector<net::Outgoing>& replies) {
  if (!slot.initialised || (options_.optimizer == nullptr && slot.version == options_.first_version)) return;
  const std::uint64_t slowest = this->slowest(slot);
  std::erase_if(slot.waiters, [&](const Waiter& waiter) {
    if (!options_.consistency.answers(slowest, waiter.header.version)) return false;
    const std::uint64_t version = options_.consistency.exact() ? waiter.header.version : slot.version;
    const ConstElements current = values(slot, version);
    const std::span<const std::byte> now = current.bytes();
    FrameHeader header = answer_to(waiter.header, FrameType::values);
    header.version = waiter.header.version == kFinalVersion ? kFinalVersion : version;
    header.dtype = current.type();
    if (skipped_ && trained(slot) && version == slot.version) header.flags |= FrameHeader::kSkipped;
    net::Outgoing reply{waiter.peer, header, now};
    if (!waiter.space.empty()) {
      if (!waiter.stored) std::memcpy(waiter.space.data(), now.data(), now.size());
      reply.payload = waiter.space;
    }
    if (!slot.workers.empty()) {
      Slot::Progress& progress = slot.workers[waiter.peer.rank];
      progress.given = slot.version;
      tell(progress.last, reply.header);
    }
    if (!given_.empty() && trained(slot)) {
      Buffer& kept = given_[waiter.peer.rank];
      if (kept.size_bytes() == 0 && waiter.space.empty())
        kept = Buffer(parameters_[1].size_bytes(), Category::communication, ledger_);
      if (kept.size_bytes() > 0) copy(current, given(slot, waiter.peer.rank));
      if (waiter.space.empty()) reply.payload = given(slot, waiter.peer.rank).bytes();
    }
    replies.push_back(std::move(reply));
    return true;
  });
}

std::uint64_t Shard::version() const {
  std::optional<std::uint64_t> least;
  for (const Slot& slot : slots_)
    if (trained(slot)) least = std::min(least.value_or(slot.version), slot.version);
  return least.value_or(0);
}

std::string Shard::describe() const {
  return fmt::format("{} of {} parameters in {} units", elements_, layout_.layout.elements(),
                     layout_.layout.units.size());
}

}  // namespace psring::server
