// A shard's state between two steps: for checkpoints, for a new membership epoch, and frame by frame for its follower.
#include <algorithm>
#include <cstring>

#include <psring/common/base/text/error.h>
#include <psring/optim/state_memory.h>
#include <psring/server/requests.h>
#include <psring/server/shard.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;

namespace {

/// The array that a frame of state holds, in header.micro. The optimizer's slots come from kSlots on.
enum Array : std::uint32_t { kValues = 0, kBefore = 1, kMaster = 2, kEnd = 3, kSlots = 4 };

}  // namespace

std::optional<std::uint64_t> Shard::save_due() const {
  const auto step = save_.due(store_);
  return step && tables_.at(*step) ? step : std::nullopt;
}

std::vector<optim::StatePart> Shard::state() {
  std::vector<optim::StatePart> parts;
  saved_arrays_.clear();
  decoded_states_.clear();
  if (options_.optimizer == nullptr) return parts;
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece) {
    const StoredPiece& stored = store_.piece(piece);
    const auto add = [&](const std::string& array, ConstElements values) {
      parts.push_back({&store_.unit(piece), stored.piece.range, array, saved_arrays_.emplace_back(values).values()});
    };
    const Elements master = stored.trained ? applier_->master(stored.place()) : Elements();
    add(optim::kValues, master.empty() ? store_.current(piece) : master);
    for (std::size_t slot = 0; stored.trained && slot < options_.optimizer->slots(); ++slot) {
      const Elements state = applier_->state(slot, stored.place());
      if (state.type() == DType::f32) {
        add(optim::slot_array(slot), state);
        continue;
      }
      std::vector<float>& values = decoded_states_.emplace_back(stored.piece.range.size());
      optim::decode_slot(slot, state, values);
      add(optim::slot_array(slot), std::span<const float>(values));
    }
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
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece) {
    const StoredPiece& stored = store_.piece(piece);
    check(pulls_.empty(piece) && rounds_.empty(piece), "a snapshot is taken between two steps");
    if (!stored.initialised) continue;
    header.unit = static_cast<std::uint32_t>(stored.piece.unit);
    header.set_range(stored.piece.range);
    header.version = stored.version;
    for (std::uint32_t array = 0; array < kSlots + options_.optimizer->slots(); ++array) {
      const Elements part = array_of(piece, stored.version, array);
      if (part.empty()) continue;
      header.micro = array;
      header.dtype = part.type();
      out.push_back({to, header, part.bytes()});
    }
  }
  tables_.snapshot(to, out);
  const auto end = std::make_shared<const std::vector<std::byte>>(step_.store());  // shared: the frame's holder
  FrameHeader last;
  last.type = FrameType::state;
  last.micro = kEnd;
  if (step_.skipped()) last.flags |= FrameHeader::kSkipped;
  out.push_back({to, last, *end, end});
}

/// Returns one of the arrays of a piece that is at `version`; empty if the piece has no such array.
Elements Shard::array_of(std::size_t piece, std::uint64_t version, std::uint32_t array) {
  const StoredPiece& stored = store_.piece(piece);
  if (array == kValues) return store_.values(piece, version);
  if (!stored.trained) return {};
  if (array == kBefore) return version > options_.first_version ? store_.values(piece, version - 1) : Elements();
  if (array == kMaster) return applier_->master(stored.place());
  if (array < kSlots || array - kSlots >= options_.optimizer->slots()) return {};
  return applier_->state(array - kSlots, stored.place());
}

bool Shard::restore(const net::Message& message) {
  const FrameHeader& header = message.header;
  if (TableShard::has_state(header)) {
    tables_.restore(message);
    return false;
  }
  if (header.micro == kEnd) {
    step_.restore(message.payload, (header.flags & FrameHeader::kSkipped) != 0);
    return true;
  }
  const std::size_t piece = find(header);
  const Elements part = array_of(piece, header.version, header.micro);
  if (header.version < options_.first_version || header.dtype != part.type() || part.empty() ||
      message.payload.size() != part.size_bytes())
    fail(ErrorKind::protocol, "{} bytes of state {} of unit {}, version {}, which cannot be", message.payload.size(),
         header.micro, header.unit, header.version);
  std::memcpy(part.data(), message.payload.data(), message.payload.size());
  if (header.micro == kValues) {
    store_.set_version(piece, header.version);
    store_.set_initialised(piece);
  }
  return false;
}

void Shard::begin_epoch(std::uint32_t workers) {
  check(
      options_.optimizer != nullptr && !options_.optimizer->layerwise() && (tables_.empty() || options_.keeps_old_rows),
      "a job whose shards do not keep two whole versions cannot go on in a new epoch");
  if (workers != options_.workers) {
    check((options_.pushers == 0 || options_.pushers == options_.workers) && options_.consistency.exact(),
          "a shard for other workers than before");
    options_.workers = workers;
    options_.pushers = 0;
  }
  pulls_.clear();
  rounds_.begin_epoch();
  tables_.begin_epoch();
  step_.begin_epoch();
  save_.clear();
}

void Shard::on_save(const FrameHeader& header) {
  check_worker(options_, header);
  if (header.sender_rank != 0) fail(ErrorKind::protocol, "worker 0 says when to save");
  if (layout_bytes_.empty()) fail(ErrorKind::protocol, "{} before any layout", to_string(header.type));
  save_.ask(header, store_);
}

void Shard::on_saved(const FrameHeader& header) {
  check_worker(options_, header);
  save_.set_written(header);
}

void Shard::saved(Answers& replies) {
  const FrameHeader request = save_.finish();
  FrameHeader header = answer_to(request, FrameType::saved);
  if (step_.skipped()) header.flags |= FrameHeader::kSkipped;
  replies.push_back({request.sender(), header, {}});
}

void Shard::on_leave(const FrameHeader& header, Answers& answers) {
  check_worker(options_, header);
  if (!options_.consistency.each_push_updates && !options_.row_consistency.each_push_updates)
    fail(ErrorKind::protocol, "nobody leaves under bsp");
  clocks_.leave(header.sender_rank);
  tables_.leave(header.sender_rank, answers);
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece) answer_pulls(piece, answers);
}

std::optional<std::uint64_t> Shard::least_version() const {
  const std::optional<std::uint64_t> units = store_.version();
  const std::optional<std::uint64_t> rows = tables_.version();
  return units && rows ? std::min(*units, *rows) : units ? units : rows;
}

std::vector<StalenessRecord> Shard::staleness() const {
  std::vector<StalenessRecord> records = clocks_.records();
  tables_.add_staleness(records);
  return records;
}

}  // namespace psring::server
