#include <algorithm>
#include <array>
#include <cstring>

#include <psring/common/base/error.h>
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

/// The text is cut to what transports copy.
net::Outgoing failed(const FrameHeader& asked, const std::string& line) {
  constexpr std::size_t kMost = 1024;
  const auto text = std::make_shared<const std::string>(line.substr(0, kMost));  // shared: the frame's holder
  return {asked.sender(), answer_to(asked, FrameType::failed), std::as_bytes(std::span(*text)), text};
}

const float* floats(const Message& message) { return reinterpret_cast<const float*>(message.payload.data()); }

/// A payload that outlives its message, in malloc's memory, which is used again.
struct Copy {
  Copy(std::span<const std::byte> of, MemoryLedger& booked_in) : bytes(of.begin(), of.end()), ledger(booked_in) {
    ledger.book(Category::communication, bytes.size());
  }
  ~Copy() { ledger.release(Category::communication, bytes.size()); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  const std::vector<std::byte> bytes;
  MemoryLedger& ledger;
};

}  // namespace

Shard::Shard(const ShardOptions& options, Parallel& parallel, MemoryLedger& ledger)
    : options_(options), parallel_(parallel), ledger_(ledger), verdict_(options.rank, options.servers) {
  check(options.aggregator != nullptr && options.consistency != nullptr, "a shard needs its rules");
  check((options.optimizer == nullptr) == (options.schedule == nullptr), "an optimizer and its schedule go together");
}

void Shard::on_message(Message message, std::vector<net::Outgoing>& replies) {
  const FrameHeader asked = message.header;
  if (asked.type == FrameType::failed) {
    if (asked.sender_role != Role::server) return;
    fail(ErrorKind::protocol, "{}: {}", to_string(asked.sender()),
         std::string(reinterpret_cast<const char*>(message.payload.data()), message.payload.size()));
  }
  try {
    switch (asked.type) {
      case FrameType::layout:
        return on_layout(message, replies);
      case FrameType::initial:
        return on_initial(message, replies);
      case FrameType::push:
      case FrameType::push_pull:
        return on_push(std::move(message), replies);
      case FrameType::pull:
        return on_pull(message, replies);
      case FrameType::verdict:
        if (!by_verdict()) fail(ErrorKind::protocol, "a verdict that nobody asked for");
        if (const auto total = verdict_.on_message(message, replies)) on_total(*total, replies);
        return;
      default:
        fail(ErrorKind::protocol, "a server takes no {} frames", to_string(asked.type));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::protocol && error.kind() != ErrorKind::data) throw;
    replies.push_back(failed(asked, error.what()));
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
    if (const std::size_t needed = bytes_for(layout.layout); needed > options_.memory_bytes)
      fail(ErrorKind::protocol, "a layout that takes {} MiB of a server, {} MiB are allowed", needed >> 20,
           options_.memory_bytes >> 20);
    take_layout(std::move(layout));
    layout_bytes_ = std::move(bytes);
  } else if (layout_bytes_ != bytes) {
    fail(ErrorKind::protocol, "{} describes another model than the first worker did",
         to_string(message.header.sender()));
  }
  replies.push_back({message.header.sender(), answer_to(message.header, FrameType::layout_ok), {}});
}

std::size_t Shard::bytes_for(const Layout& layout) const {
  const std::size_t buffers =
      options_.optimizer == nullptr ? 1 : 2 + options_.optimizer->slots() + (by_verdict() ? 1 : 0);
  return buffers * sizeof(float) * (layout.elements() / layout.owners);
}

void Shard::take_layout(net::LayoutMessage layout) {
  layout_ = std::move(layout);
  unit_slots_.assign(layout_.layout.units.size(), {0, 0});
  for (const Piece& piece : make_pieces(layout_.layout)) {
    if (piece.owner != options_.rank) continue;
    auto& [first, last] = unit_slots_[piece.unit];
    if (first == last) first = slots_.size();
    slots_.push_back({piece, 0, false, 0, std::vector<std::optional<Message>>(options_.workers), {}});
    last = slots_.size();
    elements_ = piece.offset + piece.range.size();
  }
  const std::size_t bytes_each = elements_ * sizeof(float);
  if (options_.optimizer != nullptr) {
    for (Buffer& version : parameters_) version = Buffer(bytes_each, Category::parameters, ledger_);
    for (std::size_t s = 0; s < options_.optimizer->slots(); ++s)
      state_[s] = Buffer(bytes_each, Category::optimizer, ledger_);
    if (by_verdict()) mean_ = Buffer(bytes_each, Category::gradients, ledger_);
  } else {
    parameters_[0] = Buffer(bytes_each, Category::gradients, ledger_);
  }
  for (Slot& slot : slots_) {
    slot.initialised = options_.optimizer == nullptr || !layout_.initial_by_worker;
    if (options_.optimizer != nullptr && slot.initialised)
      initialise(layout_.layout.units[slot.piece.unit], slot.piece.range, layout_.seed, values(slot, 0));
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
    if (slot.version > 0 || !layout_.initial_by_worker) fail(ErrorKind::protocol, "initial values after the start");
    return;
  }
  std::memcpy(values(slot, 0).data(), message.payload.data(), message.payload.size());
  slot.initialised = true;
  answer_waiters(slot, replies);
}

Shard::Slot& Shard::find(const Message& message) {
  const FrameHeader& header = message.header;
  check_worker(header);
  if (layout_bytes_.empty()) fail(ErrorKind::protocol, "{} before any layout", to_string(header.type));
  if (header.unit >= unit_slots_.size()) fail(ErrorKind::protocol, "no unit {}", header.unit);
  const auto [first, last] = unit_slots_[header.unit];
  const auto begin = slots_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(last);
  const auto at = std::lower_bound(begin, end, header.begin,
                                   [](const Slot& slot, std::size_t b) { return slot.piece.range.begin < b; });
  if (at == end || at->piece.range != header.range())
    fail(ErrorKind::protocol, "no piece [{}, {}) of unit {} here", header.begin, header.end, header.unit);
  if (header.dtype != DType::f32)
    fail(ErrorKind::protocol, "elements of type {}, f32 expected", static_cast<int>(header.dtype));
  const std::size_t bytes = header.range().size() * sizeof(float);
  const std::size_t carried = header.type == FrameType::pull ? 0 : bytes;
  if (message.payload.size() != carried)
    fail(ErrorKind::protocol, "a {} with {} bytes of payload, {} expected", to_string(header.type),
         message.payload.size(), carried);
  if (!message.reply_space.empty() && message.reply_space.size() != bytes)
    fail(ErrorKind::protocol, "space of {} bytes for an answer of {}", message.reply_space.size(), bytes);
  return *at;
}

/// Keeps what waits bounded: a worker that asks anew has given up what it asked for before.
void Shard::wait(Slot& slot, Waiter waiter) {
  std::erase_if(slot.waiters, [&](const Waiter& other) { return other.peer == waiter.peer; });
  slot.waiters.push_back(std::move(waiter));
}

void Shard::on_push(Message message, std::vector<net::Outgoing>& replies) {
  Slot& slot = find(message);
  const FrameHeader header = message.header;
  if (header.step > slot.version)
    fail(ErrorKind::protocol, "a push of step {} before version {} is there", header.step, header.step);
  if (!slot.initialised) fail(ErrorKind::protocol, "a push before the initial values are there");
  const bool acknowledged = (header.flags & FrameHeader::kWantAck) != 0;
  if (acknowledged) replies.push_back({header.sender(), answer_to(header, FrameType::push_ack), {}});
  if (header.type == FrameType::push_pull) {
    Waiter waiter{header.sender(), header, message.reply_space, message.holder, false};
    waiter.header.version = header.step + 1;
    wait(slot, std::move(waiter));
  }
  std::optional<Message>& mine = slot.pushes[header.sender_rank];
  const bool repeated = header.step < slot.version || mine.has_value();
  if (!repeated) {
    mine = std::move(message);
    ++slot.pushed;
    if (options_.consistency->update_due(slot.pushed, options_.workers)) return complete(slot, replies);
    if (acknowledged) copy_payload(*mine);
  }
  answer_waiters(slot, replies);
}

/// Its sender may overwrite what it pushed, and the payload may lie in the sender's memory.
void Shard::copy_payload(Message& message) {
  const auto copy = std::make_shared<const Copy>(message.payload, ledger_);
  message.payload = copy->bytes;
  message.holder = copy;
}

void Shard::on_pull(Message& message, std::vector<net::Outgoing>& replies) {
  Slot& slot = find(message);
  wait(slot, {message.header.sender(), message.header, message.reply_space, std::move(message.holder), false});
  answer_waiters(slot, replies);
}

bool Shard::by_verdict() const {
  return options_.optimizer != nullptr && (options_.clip_norm > 0 || options_.optimizer->layerwise());
}

optim::Update Shard::update_for(const Slot& slot) const {
  return {slot.version + 1, options_.schedule->lr(options_.lr, slot.version), gradient_scale_};
}

std::span<float> Shard::values(const Slot& slot, std::uint64_t version) {
  const std::size_t which = options_.optimizer == nullptr ? 0 : version % 2;
  return parameters_[which].as<float>().subspan(slot.piece.offset, slot.piece.range.size());
}

optim::Optimizer::State Shard::state(const Slot& slot, Range part) {
  optim::Optimizer::State state;
  for (std::size_t s = 0; s < options_.optimizer->slots(); ++s)
    state.slot[s] = state_[s].as<float>().subspan(slot.piece.offset + part.begin, part.size());
  return state;
}

std::span<float> Shard::mean(const Slot& slot) {
  return mean_.as<float>().subspan(slot.piece.offset, slot.piece.range.size());
}

void Shard::complete(Slot& slot, std::vector<net::Outgoing>& replies) {
  if (!by_verdict()) {
    update_now(slot);
    return finish_version(slot, replies);
  }
  aggregate(slot);
  if (++aggregated_ < slots_.size()) return;
  aggregated_ = 0;
  clipping_ = options_.clip_norm > 0;
  if (!clipping_) return apply_all(replies);
  contribute(clip_sums(), replies);
}

/// Aggregates, updates and stores a block at a time, while it is in cache.
void Shard::update_now(Slot& slot) {
  std::vector<const float*> gradients;
  for (const auto& push : slot.pushes)
    if (push) gradients.push_back(floats(*push));
  std::vector<float*> stores;
  for (Waiter& waiter : slot.waiters) {
    waiter.stored = !waiter.space.empty() && options_.consistency->answers(slot.version + 1, waiter.header.version);
    if (waiter.stored) stores.push_back(reinterpret_cast<float*>(waiter.space.data()));
  }
  const std::span<float> now = values(slot, slot.version);
  const std::span<float> next = values(slot, slot.version + 1);
  parallel_.for_slices(slot.piece.range.size(), kBlock, [&](Range slice) {
    std::array<float, kBlock> mean;
    std::vector<const float*> inputs(gradients.size());
    for (std::size_t begin = slice.begin; begin < slice.end; begin += kBlock) {
      const Range block{begin, std::min(slice.end, begin + kBlock)};
      for (std::size_t k = 0; k < inputs.size(); ++k) inputs[k] = gradients[k] + begin;
      const std::span<float> out = next.subspan(begin, block.size());
      if (options_.optimizer == nullptr) {
        options_.aggregator->aggregate(inputs, out);
      } else {
        const std::span<float> gradient(mean.data(), block.size());
        options_.aggregator->aggregate(inputs, gradient);
        options_.optimizer->apply(update_for(slot), now.subspan(begin, block.size()), gradient, state(slot, block),
                                  out);
      }
      for (float* store : stores) std::memcpy(store + begin, out.data(), out.size_bytes());
    }
  });
}

void Shard::aggregate(Slot& slot) {
  const std::span<float> out = mean(slot);
  parallel_.for_slices(out.size(), kBlock, [&](Range slice) {
    std::vector<const float*> inputs;
    for (const auto& push : slot.pushes)
      if (push) inputs.push_back(floats(*push) + slice.begin);
    options_.aggregator->aggregate(inputs, out.subspan(slice.begin, slice.size()));
  });
}

Verdict::Sums Shard::clip_sums() {
  Verdict::Sums sums(1);
  for (const Slot& slot : slots_) optim::add_square_sum(mean(slot), sums[0]);
  return sums;
}

/// Two sums for each tensor of each unit in order: its parameters' and its direction's squares.
Verdict::Sums Shard::layerwise_sums() {
  Verdict::Sums sums;
  const auto& units = layout_.layout.units;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    std::vector<optim::TensorSums> of_unit(units[unit].tensors.size());
    for (std::size_t s = unit_slots_[unit].first; s < unit_slots_[unit].second; ++s) {
      const Slot& slot = slots_[s];
      optim::merge(of_unit, optim::layerwise_sums(units[unit].tensors, slot.piece.range, values(slot, slot.version),
                                                  values(slot, slot.version + 1)));
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
  if (!clipping_) return scale_all(total, replies);
  clipping_ = false;
  gradient_scale_ = optim::clip_scale(total.at(0), options_.clip_norm);
  apply_all(replies);
}

void Shard::apply_all(std::vector<net::Outgoing>& replies) {
  for (Slot& slot : slots_) {
    const optim::Update update = update_for(slot);
    parallel_.for_slices(slot.piece.range.size(), kBlock, [&](Range slice) {
      const auto part = [&](std::span<float> whole) { return whole.subspan(slice.begin, slice.size()); };
      options_.optimizer->apply(update, part(values(slot, slot.version)), part(mean(slot)), state(slot, slice),
                                part(values(slot, slot.version + 1)));
    });
  }
  if (options_.optimizer->layerwise()) return contribute(layerwise_sums(), replies);
  for (Slot& slot : slots_) finish_version(slot, replies);
}

void Shard::scale_all(const Verdict::Sums& total, std::vector<net::Outgoing>& replies) {
  const auto& units = layout_.layout.units;
  std::size_t at = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    std::vector<optim::TensorSums> sums(units[unit].tensors.size());
    for (optim::TensorSums& tensor : sums) {
      tensor.parameters = total.at(at++);
      tensor.direction = total.at(at++);
    }
    const std::vector<float> ratios = optim::trust_ratios(sums);
    for (std::size_t s = unit_slots_[unit].first; s < unit_slots_[unit].second; ++s) {
      Slot& slot = slots_[s];
      const std::span<float> next = values(slot, slot.version + 1);
      optim::scale_layerwise(update_for(slot).lr, units[unit].tensors, slot.piece.range, ratios,
                             values(slot, slot.version), next, next);
    }
  }
  for (Slot& slot : slots_) finish_version(slot, replies);
}

void Shard::finish_version(Slot& slot, std::vector<net::Outgoing>& replies) {
  ++slot.version;
  slot.pushed = 0;
  for (auto& push : slot.pushes) push.reset();
  answer_waiters(slot, replies);
}

void Shard::answer_waiters(Slot& slot, std::vector<net::Outgoing>& replies) {
  if (!slot.initialised || (options_.optimizer == nullptr && slot.version == 0)) return;
  const std::span<const std::byte> now = std::as_bytes(values(slot, slot.version));
  std::erase_if(slot.waiters, [&](const Waiter& waiter) {
    if (!options_.consistency->answers(slot.version, waiter.header.version)) return false;
    FrameHeader header = answer_to(waiter.header, FrameType::values);
    header.version = slot.version;
    std::span<const std::byte> payload = now;
    if (!waiter.space.empty()) {
      if (!waiter.stored) std::memcpy(waiter.space.data(), now.data(), now.size());
      payload = waiter.space;
    }
    replies.push_back({waiter.peer, header, payload});
    return true;
  });
}

std::uint64_t Shard::version() const {
  std::uint64_t least = slots_.empty() ? 0 : slots_.front().version;
  for (const Slot& slot : slots_) least = std::min(least, slot.version);
  return least;
}

std::string Shard::describe() const {
  return fmt::format("{} of {} parameters in {} units", elements_, layout_.layout.elements(),
                     layout_.layout.units.size());
}

}  // namespace psring::server
