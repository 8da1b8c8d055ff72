#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <psring/ring/call.h>

namespace psring::ring {
namespace {

/// A hash that is the same in every process.
class Hash {
 public:
  /// Mixes a word by one round of splitmix64. The latency of small operations includes this.
  void add(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0xbf58476d1ce4e5b9;
    hash_ ^= hash_ >> 31;
  }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint8_t>(c));
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0x9e3779b97f4a7c15;
};

std::string size_text(std::size_t bytes) {
  if (bytes >= 1U << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1U << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} B", bytes);
}

bool is_last(const Call& call) { return call.collective == Collective::barrier && call.fingerprint == kLast; }

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}

}  // namespace

std::string describe(const Call& call) {
  if (call.collective == Collective::barrier) return "barrier";
  std::string text = fmt::format("{} of {} {}", to_string(call.collective), call.count, to_string(call.type));
  if (reduces(call.collective))
    text += fmt::format(" ({})", call.op == ReduceOp::Kind::own ? "a user's operation" : ReduceOp(call.op).name());
  if (call.collective == Collective::broadcast) text += fmt::format(" from rank {}", call.root);
  return text;
}

std::string name_of(const Call& call, std::uint64_t number) {
  return fmt::format("{} #{} ({})", to_string(call.collective), number, size_text(call.count * call.type.bytes()));
}

std::string names_of(const std::vector<std::size_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

std::string waiting_in(std::size_t rank, const Call& call, std::uint64_t number,
                       const std::vector<std::size_t>& awaited) {
  return fmt::format("[ring] rank {}: in {}, waiting for {}", rank, name_of(call, number), names_of(awaited));
}

Error mismatch(std::uint64_t number, std::size_t rank, const Call& ours, std::size_t peer, const Call& theirs) {
  if (is_last(ours) != is_last(theirs)) {
    const auto [ended, other] = is_last(ours) ? std::pair(rank, peer) : std::pair(peer, rank);
    return {ErrorKind::peer_lost, fmt::format("[ring] rank {}: {}: rank {} has ended its program without this call",
                                              other, describe(is_last(ours) ? theirs : ours), ended)};
  }
  return {ErrorKind::usage,
          fmt::format("[ring] operation #{}: rank {} called {}, rank {} {}{}", number, rank, describe(ours), peer,
                      describe(theirs), describe(ours) == describe(theirs) ? ", with other parts" : "")};
}

std::uint64_t fingerprint(const Parts& parts) {
  Hash hash;
  for (const auto& ranges : parts) {
    hash.add(ranges.size());
    for (const Range range : ranges) {
      hash.add(range.begin);
      hash.add(range.end);
    }
  }
  return hash.value();
}

std::uint64_t fingerprint(const ReduceOp& op) {
  if (op.kind() != ReduceOp::Kind::own) return 0;
  Hash hash;
  hash.add(op.name());
  return hash.value();
}

}  // namespace psring::ring
