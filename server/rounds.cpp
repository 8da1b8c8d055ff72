#include <utility>

#include <psring/server/rounds.h>

namespace psring::server {

void Rounds::open(const Store& store) {
  micros_ = store.layout().pushes;
  trained_pieces_ = store.trained_pieces();
  rounds_.resize(store.pieces().size());
  for (std::size_t piece = 0; piece < rounds_.size(); ++piece)
    if (store.piece(piece).trained)
      rounds_[piece].micros = {micros_, {0, std::vector<std::optional<net::Message>>(options_.workers)}};
}

void Rounds::begin_epoch() {
  for (std::size_t piece = 0; piece < rounds_.size(); ++piece) {
    finish(piece);
    for (MicroBatch& micro : rounds_[piece].micros) micro.by_worker.resize(options_.workers);
  }
  complete_pieces_ = 0;
}

bool Rounds::has(std::size_t piece, std::size_t micro, std::size_t worker) const {
  const Round& round = rounds_[piece];
  return micro < round.micro || waits(piece, micro, worker);
}

bool Rounds::waits(std::size_t piece, std::size_t micro, std::size_t worker) const {
  const Round& round = rounds_[piece];
  return micro >= round.micro && round.micros[micro].by_worker[worker].has_value();
}

net::Message& Rounds::take(std::size_t piece, net::Message push) {
  MicroBatch& micro = rounds_[piece].micros[push.header.micro];
  ++micro.pushed;
  const std::uint32_t worker = push.header.sender_rank;
  return micro.by_worker[worker].emplace(std::move(push));
}

bool Rounds::micro_complete(std::size_t piece, std::uint64_t version) const {
  const Round& round = rounds_[piece];
  if (round.micro >= round.micros.size()) return false;
  const MicroBatch& micro = round.micros[round.micro];
  const std::size_t pushers = options_.pushers > 0 ? options_.pushers : options_.workers;
  if (!options_.consistency.update_due(micro.pushed, pushers)) return false;
  // With backup workers a version that is to be saved must not be updated before worker 0 has saved it: worker 0 pushes
  // after that.
  const bool saved_first = options_.consistency.backups > 0 && options_.save_every > 0 &&
                           version > options_.first_version && version % options_.save_every == 0;
  return !saved_first || micro.by_worker[0].has_value();
}

std::vector<const net::Message*> Rounds::pushes(std::size_t piece) const {
  const Round& round = rounds_[piece];
  std::vector<const net::Message*> pushes;
  for (const auto& push : round.micros[round.micro].by_worker)
    if (push) pushes.push_back(&*push);
  return pushes;
}

void Rounds::finish_micro(std::size_t piece) {
  Round& round = rounds_[piece];
  for (auto& push : round.micros[round.micro++].by_worker) push.reset();
}

void Rounds::finish(std::size_t piece) {
  rounds_[piece].micro = 0;
  for (MicroBatch& micro : rounds_[piece].micros) {
    micro.pushed = 0;
    for (auto& push : micro.by_worker) push.reset();
  }
}

bool Rounds::empty(std::size_t piece) const {
  const Round& round = rounds_[piece];
  return round.micros.empty() || round.micros[0].pushed == 0;
}

bool Rounds::count_complete_piece() {
  if (++complete_pieces_ < trained_pieces_) return false;
  complete_pieces_ = 0;
  return true;
}

std::size_t Rounds::bytes(std::size_t micros, std::size_t workers) {
  return sizeof(Round) + micros * (sizeof(MicroBatch) + workers * sizeof(std::optional<net::Message>));
}

}  // namespace psring::server
