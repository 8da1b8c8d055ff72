#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/ring/call.h>

namespace psring::ring {

/// An operation as ranks announce it to each other, compare it, count it and name it in errors: the operation of the
/// group itself, or of an outer group that uses this group for a part of its work.
struct Announced {
  Call call;
  std::uint64_t number = 0;
  std::size_t ranks = 1;  ///< the divisor of a mean
  bool control = false;   ///< counted as control traffic, not as payload of the exchange
};

/// A call with everything that a backend needs to start it. `parts` and `outer` are borrowed until `start` returns.
struct Request {
  Call call;
  Vector data;  ///< of a send: only read
  ReduceOp op = {};
  const Parts* parts = nullptr;      ///< of a reduce_scatter or all_gather
  std::size_t peer = 0;              ///< of a send or recv: the other rank
  const Announced* outer = nullptr;  ///< the operation of an outer group; null: the group's own
  bool control = false;              ///< as in Announced

  /// The operation as the other ranks receive it. `number`: the group's own for this request.
  Announced announced(std::uint64_t number, std::size_t ranks) const {
    return outer != nullptr ? *outer : Announced{call, number, ranks, control};
  }
};

}  // namespace psring::ring
