#include <psring/cli/check/counted_link.h>
#include <psring/common/base/error.h>

namespace psring::cli {

void CountedLink::send(std::size_t to, std::span<const float> values) {
  require_other("send to", to);
  sent_bytes_ += values.size_bytes();
  sizes_[{side_.rank, to}].push_back(values.size());
  side_.group.send(values, to).wait();
}

void CountedLink::recv(std::size_t from, std::span<float> values, const std::string& after) {
  require_other("recv from", from);
  side_.waits_for = fmt::format("recv from {} {}{}", noun_, from, after);
  std::deque<std::size_t>& sizes = sizes_[{from, side_.rank}];
  try {
    side_.group.recv(values, from).wait();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::timeout || sizes.empty()) throw;
    fail(ErrorKind::usage, "recv from {} {} asks for {} values, but the message has {}", noun_, from, values.size(),
         sizes.front());
  }
  sizes.pop_front();
  side_.waits_for.clear();
}

void CountedLink::require_other(const char* call, std::size_t other) const {
  const std::size_t size = side_.group.size();
  if (other >= size || other == side_.rank)
    fail(ErrorKind::usage, "{} {} {}: the other {}s of {} are 0 to {} without {}", call, noun_, other, noun_, size,
         size - 1, side_.rank);
}

}  // namespace psring::cli
