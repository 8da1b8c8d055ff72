// A push's way through the shard: checked, taken once, aggregated with the others, applied.
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/state_memory.h>
#include <psring/optim/updater.h>
#include <psring/server/requests.h>
#include <psring/server/shard.h>
#include <psring/server/store/applier.h>
#include <psring/server/store/store.h>
#include <psring/server/verdict.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;
using net::Message;

namespace {

// Carries out the decisions of StepVerdict: updates of all trained pieces of a shard together, from their mean
// gradients. Each function leaves the pieces' versions as they are; the next version is written when it returns, but
// for apply_means with a layerwise rule.

/// Number, learning rate and gradient scale of a piece's update.
using TermsOf = std::function<optim::Update(std::size_t piece)>;

/// The parameters in f32: the values themselves, or the copy that is kept of narrower ones.
std::span<float> weights(Store& store, Applier& applier, std::size_t piece) {
  const Elements master = applier.master(store.piece(piece).place());
  return (master.empty() ? store.current(piece) : master).as<float>();
}

/// Applies the optimizer. A layerwise rule writes its direction in the place of the mean gradient.
void apply_means(const optim::Optimizer& optimizer, const TermsOf& terms, Store& store, Applier& applier) {
  for (std::size_t piece = 0; piece < store.pieces().size(); ++piece) {
    if (!store.piece(piece).trained) continue;
    const Range place = store.piece(piece).place();
    applier.apply_mean({.terms = terms(piece),
                        .place = place,
                        .now = store.current(piece),
                        .next = optimizer.layerwise() ? applier.mean(place) : store.next(piece),
                        .copies = {},
                        .compensate_from = {}});
  }
}

/// Copies all values to the next version.
void skip_step(Store& store) {
  for (std::size_t piece = 0; piece < store.pieces().size(); ++piece)
    if (store.piece(piece).trained) copy(store.current(piece), store.next(piece));
}

/// Two sums for each tensor of each trained unit, in order: the squares of its parameters, and of its direction.
Verdict::Sums layerwise_sums(Store& store, Applier& applier) {
  Verdict::Sums sums;
  for (const std::size_t unit : store.layout().trained()) {
    const auto& tensors = store.layout().units[unit].tensors;
    std::vector<optim::TensorSums> unit_sums(tensors.size());
    const auto [first, last] = store.pieces_of(unit);
    for (std::size_t piece = first; piece < last; ++piece) {
      const StoredPiece& stored = store.piece(piece);
      optim::merge(unit_sums, optim::layerwise_sums(tensors, stored.piece.range, weights(store, applier, piece),
                                                    applier.mean(stored.place()).as<float>()));
    }
    for (const optim::TensorSums& tensor : unit_sums) {
      sums.push_back(tensor.parameters);
      sums.push_back(tensor.direction);
    }
  }
  return sums;
}

/// Completes a layerwise update: subtracts each tensor's direction, scaled by the ratio of the tensor's two norms.
/// `total`: layerwise_sums of all shards.
void scale_layers(const Verdict::Sums& total, const TermsOf& terms, Store& store, Applier& applier) {
  std::size_t at = 0;
  for (const std::size_t unit : store.layout().trained()) {
    const auto& tensors = store.layout().units[unit].tensors;
    std::vector<optim::TensorSums> sums(tensors.size());
    for (optim::TensorSums& tensor : sums) {
      tensor.parameters = total.at(at++);
      tensor.direction = total.at(at++);
    }
    const std::vector<float> ratios = optim::trust_ratios(sums);
    const auto [first, last] = store.pieces_of(unit);
    for (std::size_t piece = first; piece < last; ++piece) {
      const StoredPiece& stored = store.piece(piece);
      const bool has_master = !applier.master(stored.place()).empty();
      const Elements next = store.next(piece);
      const std::span<float> before = weights(store, applier, piece);
      const std::span<float> after = has_master ? before : next.as<float>();
      optim::scale_layerwise(terms(piece).lr, tensors, stored.piece.range, ratios, before,
                             applier.mean(stored.place()).as<float>(), after);
      if (has_master) narrow(after, next);
    }
  }
}

}  // namespace

void Shard::on_push(Message message, Answers& answers) {
  const std::size_t piece = check_push(message);
  const FrameHeader header = message.header;
  if (header.type == FrameType::push_pull) {
    check_version(piece, header.step + 1);
    WaitingPull pull{header.sender(), header, message.reply_space, message.reply_holder};
    pull.header.version = header.step + 1;
    pulls_.add(piece, std::move(pull));
  }
  if (is_repeated(piece, header))
    answer_repeated_push(piece, header, answers);
  else
    take_push(piece, std::move(message), answers);
}

/// Throws protocol unless the push may come now. Returns the piece's number.
std::size_t Shard::check_push(const Message& message) const {
  const std::size_t piece = check_request(message);
  const FrameHeader& header = message.header;
  const StoredPiece& stored = store_.piece(piece);
  if (!stored.trained) fail(ErrorKind::protocol, "a push of unit {}, which is not trained", header.unit);
  if (header.micro >= rounds_.micros())
    fail(ErrorKind::protocol, "a push of micro-batch {} of {}", header.micro, rounds_.micros());
  const std::uint64_t due = clocks_.due(piece, header.sender_rank, stored.version);
  if (header.step > due) fail(ErrorKind::protocol, "a push of step {}, where step {} is due", header.step, due);
  if (clocks_.has_left(header.sender_rank))
    fail(ErrorKind::protocol, "a push of {}, which has left", to_string(header.sender()));
  if (!stored.initialised) fail(ErrorKind::protocol, "a push before the initial values are there");
  return piece;
}

/// True if the shard has this push already. A push is known by worker, step, micro-batch, unit and range. The shard has
/// it if an update of that step was made, if its micro-batch has been added up, or if it waits for other workers.
bool Shard::is_repeated(std::size_t piece, const FrameHeader& push) const {
  const std::uint64_t due = clocks_.due(piece, push.sender_rank, store_.piece(piece).version);
  return push.step < due || rounds_.has(piece, push.micro, push.sender_rank);
}

/// Handles a push that comes twice: drops the gradient, which is in an update or in the round already, and repeats the
/// answers. The acknowledgement, if the push wants one, leaves at once, unless the first push still waits in the round:
/// then its own is to come (if the shard copied the push, it has left). The values that a push_pull asks for leave as
/// soon as they are there. Workers repeat pushes when a process was lost and they repeat the step. With backup workers
/// the push of a late worker comes here, too: the update was made without it.
void Shard::answer_repeated_push(std::size_t piece, const FrameHeader& push, Answers& answers) {
  if (options_.consistency.backups > 0) clocks_.count_dropped(push.sender_rank);
  const bool is_old = push.step < clocks_.due(piece, push.sender_rank, store_.piece(piece).version);
  const bool waits = !is_old && rounds_.waits(piece, push.micro, push.sender_rank);
  if (!waits || (push.flags & FrameHeader::kCopy) != 0) acknowledge(piece, push, answers);
  answer_pulls(piece, answers);
}

/// Takes a push into the round, and updates the piece if this was the last gradient that the update waited for. Until
/// then the gradient stays where it is, often in the worker's own memory: the acknowledgement, which lets the worker
/// overwrite it, leaves when the push is added to the others. So a worker that is ahead cannot fill a server's memory.
/// A push with kCopy is copied and acknowledged at once: its worker may choose another order of units than the others,
/// and then workers that wait for acknowledgements would wait for each other.
void Shard::take_push(std::size_t piece, Message push, Answers& answers) {
  const FrameHeader header = push.header;
  Message& kept = rounds_.take(piece, std::move(push));
  const std::uint64_t version = store_.piece(piece).version;
  if (clocks_.each_push_updates(piece))
    clocks_.count_push(piece, header.sender_rank, version);
  else if (options_.consistency.backups > 0)
    clocks_.count_in_time(header.sender_rank);
  if (header.micro == rounds_.micro(piece) && rounds_.micro_complete(piece, version))
    return complete_micro(piece, answers);
  if ((header.flags & FrameHeader::kCopy) != 0) {
    keep(kept);
    acknowledge(piece, header, answers);
    kept.header.flags &= static_cast<std::uint8_t>(~FrameHeader::kWantAck);
  }
  answer_pulls(piece, answers);
}

/// Answers a push that wants an acknowledgement.
void Shard::acknowledge(std::size_t piece, const FrameHeader& push, Answers& answers) const {
  if ((push.flags & FrameHeader::kWantAck) == 0) return;
  FrameHeader answer = answer_to(push, FrameType::push_ack);
  answer.version = store_.piece(piece).version;
  set_staleness(clocks_.last(piece, push.sender_rank), answer);
  answers.push_back({push.sender(), answer, {}});
}

/// Acknowledges the pushes of the micro-batch that is collected now: their gradients have been used.
void Shard::acknowledge_all(std::size_t piece, Answers& answers) const {
  for (const Message* push : rounds_.pushes(piece)) acknowledge(piece, push->header, answers);
}

/// The gradients of the micro-batch that is collected now, in worker order.
std::vector<ConstElements> Shard::gradients(std::size_t piece) {
  return pushed_.of(rounds_.pushes(piece), store_.unit(piece));
}

/// Handles a micro-batch that has all its pushes. If the mean is kept, adds up this micro-batch, and the next ones if
/// they are complete, too. With the step's last micro-batch the piece is updated, or waits for the verdict with all
/// other pieces.
void Shard::complete_micro(std::size_t piece, Answers& answers) {
  const StoredPiece& stored = store_.piece(piece);
  if (options_.keeps_mean(store_.layout())) {
    for (; rounds_.micro_complete(piece, stored.version); rounds_.finish_micro(piece)) {
      tell_aggregate(piece);
      applier_->add_to_mean(gradients(piece), stored.place(), rounds_.micro(piece) == 0);
      acknowledge_all(piece, answers);
    }
    if (!rounds_.all_complete(piece)) return answer_pulls(piece, answers);
  }
  if (options_.needs_verdict()) {
    if (rounds_.count_complete_piece()) begin_verdict(answers);
    return;
  }
  update(piece);
  if (!options_.keeps_mean(store_.layout())) acknowledge_all(piece, answers);
  finish_update(piece, answers);
}

/// Writes the piece's next version, into the store and into the memory of the workers that wait for it.
void Shard::update(std::size_t piece) {
  const StoredPiece& stored = store_.piece(piece);
  const auto pusher = clocks_.push_being_applied(piece);
  const std::uint64_t slowest = clocks_.slowest(piece, stored.version + 1);
  std::vector<std::byte*> copies;
  for (WaitingPull& pull : pulls_.of(piece)) {
    pull.stored = !pull.memory.empty() && options_.consistency.answers(slowest, pull.header.version);
    if (pull.stored) copies.push_back(pull.memory.data());
  }
  const bool compensates = pusher && options_.remedy.keeps_answers();
  const PieceUpdate update{.terms = terms(piece),
                           .place = stored.place(),
                           .now = store_.current(piece),
                           .next = store_.next(piece),
                           .copies = copies,
                           .compensate_from = compensates ? copies_.last(*pusher, stored.place()) : ConstElements()};
  if (options_.keeps_mean(store_.layout())) {
    tell_update(piece);
    applier_->apply_mean(update);
  } else {
    tell_aggregate(piece);
    tell_update(piece);
    applier_->apply_pushed(gradients(piece), update);
  }
}

/// Tells that the gradients that workers have pushed for the piece are added up.
void Shard::tell_aggregate(std::size_t piece, Source source) const {
  if (!options_.working) return;
  const StoredPiece& stored = store_.piece(piece);
  const std::uint64_t bytes =
      rounds_.pushes(piece).size() * stored.piece.range.size() * size_bytes(store_.layout().gradient_type);
  options_.working({"aggregate", static_cast<std::uint32_t>(stored.piece.unit), stored.version, bytes, source});
}

/// Tells that the optimizer reads the piece's mean gradient, parameters and state, and writes the last two.
void Shard::tell_update(std::size_t piece, Source source) const {
  if (!options_.working || options_.optimizer == nullptr) return;
  const StoredPiece& stored = store_.piece(piece);
  const Layout& layout = store_.layout();
  const std::size_t master = options_.keeps_master(layout) ? sizeof(float) : 0;
  const std::size_t each = size_bytes(layout.gradient_type) + 2 * size_bytes(layout.parameter_type) + 2 * master;
  const std::size_t elements = stored.piece.range.size();
  const std::size_t state = options_.optimizer->slots() * optim::slot_bytes(*options_.optimizer, elements);
  options_.working(
      {"update", static_cast<std::uint32_t>(stored.piece.unit), stored.version, elements * each + 2 * state, source});
}

/// Number, learning rate and gradient scale of the piece's next update. Under ssp and asp the schedule counts the
/// updates of all workers together, and --remedy scale-lr divides the rate by 1 + staleness.
optim::Update Shard::terms(std::size_t piece) const {
  if (options_.optimizer == nullptr) return {};
  const std::uint64_t version = store_.piece(piece).version;
  const auto pusher = clocks_.push_being_applied(piece);
  if (!pusher)
    return {version + 1 - step_.scaler().skipped(), options_.schedule->lr(options_.lr, version),
            step_.gradient_scale()};
  const std::uint64_t updates = version - options_.first_version;
  float lr = options_.schedule->lr(options_.lr, options_.first_version + updates / options_.workers);
  if (options_.remedy.kind == StalenessRemedy::Kind::scale_lr)
    lr /= 1 + static_cast<float>(clocks_.last(piece, *pusher).staleness);
  return {version + 1, lr, step_.gradient_scale()};
}

/// All pieces have their mean gradients: the shard takes part in the verdict's first round.
void Shard::begin_verdict(Answers& answers) {
  if (!options_.needs_norm()) return carry_out({StepVerdict::Action::apply, {}}, answers);
  optim::ExactSum square_sum;
  applier_->add_square_sums(square_sum);
  carry_out(step_.on_square_sum(square_sum, answers), answers);
}

void Shard::carry_out(const StepVerdict::Decision& decision, Answers& answers) {
  const TermsOf terms = [this](std::size_t piece) { return this->terms(piece); };
  switch (decision.action) {
    case StepVerdict::Action::wait:
      return;
    case StepVerdict::Action::skip:
      skip_step(store_);
      break;
    case StepVerdict::Action::apply:
      for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece)
        if (store_.piece(piece).trained) tell_update(piece);
      apply_means(*options_.optimizer, terms, store_, *applier_);
      if (options_.optimizer->layerwise())
        return carry_out(step_.on_layer_sums(layerwise_sums(store_, *applier_), answers), answers);
      break;
    case StepVerdict::Action::scale_layers:
      scale_layers(decision.total, terms, store_, *applier_);
      break;
  }
  for (std::size_t piece = 0; piece < store_.pieces().size(); ++piece)
    if (store_.piece(piece).trained) finish_update(piece, answers);
}

/// The piece's next version is written: it becomes the current one, and pulls that waited for it are answered.
void Shard::finish_update(std::size_t piece, Answers& answers) {
  store_.advance(piece);
  clocks_.finish(piece);
  rounds_.finish(piece);
  answer_pulls(piece, answers);
}

void Shard::on_verdict(const Message& message, Answers& answers) {
  if (!options_.needs_verdict()) fail(ErrorKind::protocol, "a verdict that nobody asked for");
  carry_out(step_.on_message(message, answers), answers);
}

}  // namespace psring::server
