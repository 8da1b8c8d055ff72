#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/pieces.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/frame.h>
#include <psring/common/net/layout_message.h>
#include <psring/server/shard_options.h>

namespace psring::server {

/// A piece that this shard owns.
struct StoredPiece {
  Piece piece;
  std::uint64_t version = 0;  ///< the number of updates, counted on from the version that the job begins with
  bool trained = true;        ///< a piece that is not trained stays at its first version
  bool initialised = false;   ///< has its initial values

  /// The piece's place in the shard's flat storage.
  Range place() const { return {piece.offset, piece.offset + piece.range.size()}; }
};

/// The pieces of a shard, their versions, and the memory of their values.
///
/// A trained piece has two buffers: version v lies in buffer v % 2. An update reads version v and writes version v + 1
/// into the other buffer, so an answer of version v that is still being sent stays whole. Version v is overwritten by
/// the update after the next one. A piece that is not trained has one buffer. A shard without an optimizer keeps the
/// aggregated gradient instead, in one buffer. Pieces are numbered from 0, in the order of make_pieces.
class Store {
 public:
  /// REQUIRES: options and ledger outlive the store.
  Store(const ShardOptions& options, MemoryLedger& ledger) : options_(options), ledger_(ledger) {}

  /// Lists the pieces of this shard, and allocates zeroed memory. REQUIRES: called once.
  void open(net::LayoutMessage layout);

  const net::LayoutMessage& description() const { return description_; }
  const Layout& layout() const { return description_.layout; }
  const UnitLayout& unit(std::size_t piece) const { return layout().units[pieces_[piece].piece.unit]; }
  std::size_t elements() const { return elements_; }                  ///< of all pieces, padding counted
  std::size_t trained_elements() const { return trained_elements_; }  ///< of trained pieces, padding counted
  std::size_t trained_pieces() const { return trained_pieces_; }
  /// Elements of the largest trained piece.
  std::size_t largest_trained_piece() const;

  const std::vector<StoredPiece>& pieces() const { return pieces_; }
  const StoredPiece& piece(std::size_t piece) const { return pieces_[piece]; }
  /// The numbers [first, last) of a unit's pieces.
  std::pair<std::size_t, std::size_t> pieces_of(std::size_t unit) const { return unit_pieces_[unit]; }
  /// Returns the number of the piece that a frame names. Throws protocol if there is none.
  std::size_t find(const net::FrameHeader& header) const;

  /// The type of the values that pulls are answered with.
  DType answer_type() const;
  /// The memory of a version of a piece.
  Elements values(std::size_t piece, std::uint64_t version);
  Elements current(std::size_t piece) { return values(piece, pieces_[piece].version); }
  Elements next(std::size_t piece) { return values(piece, pieces_[piece].version + 1); }

  /// Says that the piece has its initial values.
  void set_initialised(std::size_t piece) { pieces_[piece].initialised = true; }
  /// Makes the next version the current one: its values have been written.
  void advance(std::size_t piece) { ++pieces_[piece].version; }
  void set_version(std::size_t piece, std::uint64_t version) { pieces_[piece].version = version; }

  /// The least version of the trained pieces: the updates that all of them have had. Nothing if there are none.
  std::optional<std::uint64_t> version() const;
  /// "334336 of 668672 parameters in 6 units"
  std::string describe() const;

 private:
  const ShardOptions& options_;
  MemoryLedger& ledger_;
  net::LayoutMessage description_;
  std::size_t elements_ = 0;
  std::size_t trained_elements_ = 0;
  std::size_t trained_pieces_ = 0;
  std::vector<StoredPiece> pieces_;
  std::vector<std::pair<std::size_t, std::size_t>> unit_pieces_;  ///< by unit
  Buffer versions_[2];  ///< values of untrained pieces lie in [0], behind the values of trained pieces
};

}  // namespace psring::server
