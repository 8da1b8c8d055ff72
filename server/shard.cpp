// The shard's protocol: who gets a frame, and the way of a pull. Its beginning, pushes and state have their own files.
#include <cstring>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/net/failed_frame.h>
#include <psring/server/requests.h>
#include <psring/server/shard.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;
using net::Message;

Shard::Shard(const ShardOptions& options, Parallel& parallel, MemoryLedger& ledger)
    : options_(options),
      parallel_(parallel),
      ledger_(ledger),
      store_(options_, ledger),
      rounds_(options_),
      clocks_(options_, options_.consistency),
      step_(options_),
      pushed_(options_, ledger),
      copies_(options_, store_, ledger),
      save_(options_),
      tables_(options_, ledger) {
  check(options.aggregator != nullptr, "a shard needs its rule");
  check((options.optimizer == nullptr) == (options.schedule == nullptr), "an optimizer and its schedule go together");
  check(options.device == nullptr ||
            (options.optimizer != nullptr && options.aggregator->sum_times(1) && !options.remedy.keeps_answers()),
        "updates that no device makes");
}

void Shard::on_message(Message message, Answers& replies) {
  const FrameHeader asked = message.header;
  if (asked.type == FrameType::failed) {
    if (asked.sender_role != net::Role::server) return;
    throw net::error_of(message);
  }
  const bool first_layout = layout_bytes_.empty();
  try {
    handle(std::move(message), replies);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::protocol && error.kind() != ErrorKind::data) throw;
    replies.push_back(failed(asked, error));
  }
  // Outside the try: a damaged checkpoint is no fault of the sender's.
  if (first_layout && !layout_bytes_.empty()) load_saved();
}

void Shard::handle(Message message, Answers& answers) {
  switch (message.header.type) {
    case FrameType::layout:
      return on_layout(message, answers);
    case FrameType::initial:
      return on_initial(message, answers);
    case FrameType::push:
    case FrameType::push_pull:
      return on_push(std::move(message), answers);
    case FrameType::pull:
      return on_pull(message, answers);
    case FrameType::save:
      return on_save(message.header);
    case FrameType::saved:
      return on_saved(message.header);
    case FrameType::leave:
      return on_leave(message.header, answers);
    case FrameType::verdict:
      return on_verdict(message, answers);
    case FrameType::rows_pull:
      check_tables(message.header);
      return tables_.on_pull(message, answers);
    case FrameType::rows_push:
      check_tables(message.header);
      return tables_.on_push(std::move(message), answers);
    default:
      fail(ErrorKind::protocol, "a server takes no {} frames", to_string(message.header.type));
  }
}

/// The number of the piece that a frame names.
std::size_t Shard::find(const FrameHeader& header) const {
  if (layout_bytes_.empty()) fail(ErrorKind::protocol, "{} before any layout", to_string(header.type));
  return store_.find(header);
}

/// Checks sender and form of a worker's request about a piece, and returns the piece's number.
std::size_t Shard::check_request(const Message& message) const {
  check_worker(options_, message.header);
  const std::size_t piece = find(message.header);
  check_form(options_, store_.layout(), store_.answer_type(), message);
  return piece;
}

/// Checks that a pull of this version can be answered, now or later. Under bsp without backup workers a version that is
/// older than the kept one is gone.
void Shard::check_version(std::size_t piece, std::uint64_t wanted) const {
  const StoredPiece& stored = store_.piece(piece);
  if (!options_.consistency.exact() || wanted >= stored.version) return;
  const bool kept = options_.optimizer != nullptr && stored.trained && wanted >= options_.first_version;
  if (!kept || wanted + 1 < stored.version)
    fail(ErrorKind::protocol, "a pull of version {} of unit {}, which is at {}", wanted, stored.piece.unit,
         stored.version);
}

void Shard::on_pull(Message& message, Answers& answers) {
  const std::size_t piece = check_request(message);
  const FrameHeader& header = message.header;
  const StoredPiece& stored = store_.piece(piece);
  if (!stored.trained && (options_.optimizer == nullptr || header.version > stored.version))
    fail(ErrorKind::protocol, "a pull of version {} of unit {}, which is not trained", header.version, header.unit);
  check_version(piece, header.version);
  pulls_.add(piece, {header.sender(), header, message.reply_space, std::move(message.reply_holder)});
  answer_pulls(piece, answers);
}

/// Answers the pulls of a piece that can be answered now; the others go on waiting.
void Shard::answer_pulls(std::size_t piece, Answers& answers) {
  const StoredPiece& stored = store_.piece(piece);
  if (!stored.initialised) return;
  if (options_.optimizer == nullptr && stored.version == options_.first_version) return;  // nothing is aggregated yet
  const std::uint64_t slowest = clocks_.slowest(piece, stored.version);
  pulls_.answer(piece, [&](const WaitingPull& pull) {
    const std::uint64_t wanted = pull.header.version;
    if (!options_.consistency.answers(slowest, wanted)) return false;
    // A pull may overtake the worker's own push, which it wants to see.
    if (wanted != kFinalVersion && clocks_.due(piece, pull.worker.rank, wanted) < wanted) return false;
    answers.push_back(answer(piece, pull));
    return true;
  });
}

/// The answer to a pull: in the worker's own memory if the transport has access to it, otherwise from the store, or
/// from a copy if the store's memory may be overwritten before the answer has arrived.
net::Outgoing Shard::answer(std::size_t piece, const WaitingPull& pull) {
  const StoredPiece& stored = store_.piece(piece);
  const bool final = pull.header.version == kFinalVersion;
  const std::uint64_t version = options_.consistency.exact() ? pull.header.version : stored.version;
  const ConstElements values = store_.values(piece, version);
  FrameHeader header = answer_to(pull.header, FrameType::values);
  header.version = final ? kFinalVersion : version;
  header.dtype = values.type();
  if (step_.skipped() && stored.trained && version == stored.version) header.flags |= FrameHeader::kSkipped;
  if (clocks_.each_push_updates(piece)) {
    clocks_.set_sent(piece, pull.worker.rank, stored.version);
    set_staleness(clocks_.last(piece, pull.worker.rank), header);
  }
  const bool in_place = !pull.memory.empty();
  if (in_place && !pull.stored) std::memcpy(pull.memory.data(), values.data(), values.size_bytes());
  const ConstElements copy =
      stored.trained ? copies_.keep(pull.worker.rank, stored.place(), values, !in_place) : ConstElements();
  if (in_place) return {pull.worker, header, pull.memory};
  return {pull.worker, header, copy.empty() ? values.bytes() : copy.bytes()};
}

}  // namespace psring::server
