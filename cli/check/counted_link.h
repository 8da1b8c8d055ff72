#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <psring/cli/check/ranks.h>

namespace psring::cli {

/// By sender and receiver: the sizes of the messages that were not received yet.
using MessageSizes = std::map<std::pair<std::size_t, std::size_t>, std::deque<std::size_t>>;

/// The messages of a rank through psring's own group: counted, with errors that a student understands. Both calls throw
/// usage for a rank that does not exist, and `recv` for a message of another size.
class CountedLink {
 public:
  /// `sizes`: of all ranks' messages; one rank at a time runs. `noun`: the exercise's word for a rank.
  CountedLink(RankSide& side, MessageSizes& sizes, const char* noun) : side_(side), sizes_(sizes), noun_(noun) {}

  void send(std::size_t to, std::span<const float> values);
  /// `after`: stands behind the place where the rank waits, if it waits for ever.
  void recv(std::size_t from, std::span<float> values, const std::string& after = "");

  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  void require_other(const char* call, std::size_t other) const;

  RankSide& side_;
  MessageSizes& sizes_;
  const char* noun_;
  std::size_t sent_bytes_ = 0;
};

}  // namespace psring::cli
