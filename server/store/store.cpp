#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/server/store/store.h>

namespace psring::server {

void Store::open(net::LayoutMessage layout) {
  description_ = std::move(layout);
  const std::vector<UnitLayout>& units = this->layout().units;
  const bool initialised = options_.optimizer == nullptr || !description_.initial_by_worker;
  unit_pieces_.assign(units.size(), {0, 0});
  for (const Piece& piece : make_pieces(this->layout())) {
    if (piece.owner != options_.rank) continue;
    auto& [first, last] = unit_pieces_[piece.unit];
    if (first == last) first = pieces_.size();
    pieces_.push_back({.piece = piece,
                       .version = options_.first_version,
                       .trained = units[piece.unit].trained,
                       .initialised = initialised});
    last = pieces_.size();
    if (pieces_.back().trained) ++trained_pieces_;
  }
  elements_ = this->layout().owned_elements(options_.rank);
  trained_elements_ = this->layout().owned_trained_elements(options_.rank);
  const std::size_t bytes = size_bytes(answer_type());
  if (options_.optimizer == nullptr) {
    versions_[0] = Buffer(trained_elements_ * bytes, Category::gradients, ledger_);
    return;
  }
  versions_[0] = Buffer(elements_ * bytes, Category::parameters, ledger_);
  versions_[1] = Buffer(trained_elements_ * bytes, Category::parameters, ledger_);
}

std::size_t Store::find(const net::FrameHeader& header) const {
  if (header.unit >= unit_pieces_.size()) fail(ErrorKind::protocol, "no unit {}", header.unit);
  const auto [first, last] = unit_pieces_[header.unit];
  const auto begin = pieces_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = pieces_.begin() + static_cast<std::ptrdiff_t>(last);
  const auto at = std::lower_bound(begin, end, header.begin,
                                   [](const StoredPiece& piece, std::size_t b) { return piece.piece.range.begin < b; });
  if (at == end || at->piece.range != header.range())
    fail(ErrorKind::protocol, "no piece [{}, {}) of unit {} here", header.begin, header.end, header.unit);
  return static_cast<std::size_t>(at - pieces_.begin());
}

std::size_t Store::largest_trained_piece() const {
  std::size_t largest = 0;
  for (const StoredPiece& piece : pieces_)
    if (piece.trained) largest = std::max(largest, piece.piece.range.size());
  return largest;
}

DType Store::answer_type() const {
  return options_.optimizer == nullptr ? layout().gradient_type : layout().parameter_type;
}

Elements Store::values(std::size_t piece, std::uint64_t version) {
  const StoredPiece& stored = pieces_[piece];
  const bool two = options_.optimizer != nullptr && stored.trained;
  return versions_[two ? version % 2 : 0].elements(answer_type()).part(stored.place());
}

std::optional<std::uint64_t> Store::version() const {
  std::optional<std::uint64_t> least;
  for (const StoredPiece& piece : pieces_)
    if (piece.trained) least = std::min(least.value_or(piece.version), piece.version);
  return least;
}

std::string Store::describe() const {
  return fmt::format("{} of {} parameters in {} units", elements_, layout().elements(), layout().units.size());
}

}  // namespace psring::server
