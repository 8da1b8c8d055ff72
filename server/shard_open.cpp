// The shard's beginning: the layout, and the values that it starts from.
#include <algorithm>
#include <array>

#include <psring/common/base/text/error.h>
#include <psring/server/requests.h>
#include <psring/server/shard.h>
#include <psring/server/store/device_applier.h>
#include <psring/server/store/host_applier.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;
using net::Message;

void Shard::on_layout(const Message& message, Answers& answers) {
  check_worker(options_, message.header);
  std::vector<std::byte> bytes(message.payload.begin(), message.payload.end());
  if (layout_bytes_.empty()) {
    net::LayoutMessage layout = net::decode_layout(bytes);
    check_layout(options_, layout.layout);
    open(std::move(layout));
    layout_bytes_ = std::move(bytes);
    layout_from_ = message.header.sender();
  } else if (layout_bytes_ != bytes) {
    fail(ErrorKind::data, "{} has another model than {}: {}", to_string(message.header.sender()),
         to_string(layout_from_), net::difference(net::decode_layout(bytes), store_.description()));
  }
  answers.push_back(layout_ok(message.header));
}

/// Says where the worker continues, and how its losses are scaled there: at the least version of all pieces or, under
/// ssp and asp, at the worker's least clock.
net::Outgoing Shard::layout_ok(const FrameHeader& asked) const {
  std::optional<std::uint64_t> least;
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece) {
    if (!store_.piece(piece).trained) continue;
    const std::uint64_t due = clocks_.due(piece, asked.sender_rank, store_.piece(piece).version);
    least = std::min(least.value_or(due), due);
  }
  FrameHeader header = answer_to(asked, FrameType::layout_ok);
  if (!options_.row_consistency.each_push_updates)
    if (const auto rows = tables_.version()) least = std::min(least.value_or(*rows), *rows);
  header.version = least.value_or(options_.first_version);
  if (!step_.scaler().active()) return {asked.sender(), header, {}};
  const auto scale = std::make_shared<const std::array<std::byte, optim::LossScaler::kBytes>>(step_.scaler().store());
  return {asked.sender(), header, *scale, scale};  // shared: the frame's holder
}

/// Opens all parts for the layout, and initialises the values that follow from it.
void Shard::open(net::LayoutMessage layout) {
  store_.open(std::move(layout));
  tables_.open(store_.description());
  rounds_.open(store_);
  std::vector<bool> trained;
  for (const StoredPiece& piece : store_.pieces()) trained.push_back(piece.trained);
  clocks_.open(trained);
  pulls_.open(store_.pieces().size());
  copies_.open();
  pushed_.open(store_.layout().gradient_type, store_.largest_trained_piece());
  if (options_.device != nullptr) {
    applier_ = std::make_unique<DeviceApplier>(options_, store_.layout(), store_.largest_trained_piece(), ledger_);
  } else {
    applier_ = std::make_unique<HostApplier>(options_, store_.layout(), parallel_, ledger_);
  }
  if (options_.optimizer == nullptr || options_.saved) return;
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece) {
    if (!store_.piece(piece).initialised) continue;
    const Range range = store_.piece(piece).piece.range;
    std::vector<float> values(range.size());
    initialise(store_.unit(piece), range, store_.description().seed, values);
    begin_with(piece, values);
  }
}

/// Gives a piece its initial values.
void Shard::begin_with(std::size_t piece, std::span<const float> values) {
  narrow(values, store_.current(piece));
  if (!store_.piece(piece).trained) return;
  const Range place = store_.piece(piece).place();
  applier_->begin_with(place, values);
  copies_.begin_with(place, values);
}

/// Reads values and optimizer state from the checkpoint that the job begins with.
void Shard::load_saved() {
  tables_.load_saved();
  if (!options_.saved) return;
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece) {
    const StoredPiece& stored = store_.piece(piece);
    const UnitLayout& unit = store_.unit(piece);
    std::vector<float> values(stored.piece.range.size());
    options_.saved(unit, stored.piece.range, optim::kValues, values);
    begin_with(piece, values);
    for (std::size_t slot = 0; stored.trained && slot < options_.optimizer->slots(); ++slot) {
      options_.saved(unit, stored.piece.range, optim::slot_array(slot), values);
      applier_->begin_with_state(slot, stored.place(), values);
    }
  }
}

void Shard::on_initial(const Message& message, Answers& answers) {
  const std::size_t piece = check_request(message);
  if (message.header.sender_rank != 0) fail(ErrorKind::protocol, "initial values come from worker 0");
  const StoredPiece& stored = store_.piece(piece);
  if (stored.initialised) {
    if (!store_.description().initial_by_worker) fail(ErrorKind::protocol, "initial values after the start");
    return;  // repeated by a worker that began anew, and does not know that they were taken
  }
  begin_with(piece, ConstElements(message.payload.data(), stored.piece.range.size(), DType::f32).as<float>());
  store_.set_initialised(piece);
  answer_pulls(piece, answers);
}

std::string Shard::describe() const {
  if (tables_.empty()) return store_.describe();
  return fmt::format("{}, {} rows of tables", store_.describe(), tables_.rows());
}

void Shard::check_tables(const FrameHeader& header) const {
  check_worker(options_, header);
  if (layout_bytes_.empty()) fail(ErrorKind::protocol, "{} before any layout", to_string(header.type));
}

}  // namespace psring::server
