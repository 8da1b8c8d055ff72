// Sums between servers: any bytes, of any round, from any sender.
#include <psring/optim/exact_sum.h>
#include <psring/server/verdict.h>
#include <psring/tests/fuzz/frames.h>

using namespace psring;
using optim::ExactSum;

namespace {

ExactSum read_sum(fuzz::Input& in) {
  std::array<std::byte, ExactSum::kBytes> bytes{};
  const auto given = in.take(in.below(ExactSum::kBytes + 1));
  std::ranges::copy(given, bytes.begin());
  return ExactSum::load(bytes);
}

}  // namespace

void psring::fuzz::run(Input in) {
  const auto rank = static_cast<std::uint32_t>(in.below(3));
  server::Verdict verdict(rank, 3);
  std::vector<net::Outgoing> replies;
  while (!in.empty()) {
    replies.clear();
    if (in.below(2) == 0) {
      server::Verdict::Sums mine;
      for (std::size_t count = in.below(4); count > 0; --count) {
        ExactSum sum = read_sum(in);
        const double value = sum.value();
        sum.add(value);
        sum.merge(sum);
        std::array<std::byte, ExactSum::kBytes> stored;
        sum.store(stored);
        require(ExactSum::load(stored) == sum, "a sum that is read as it was written");
        mine.push_back(sum);
      }
      refuses(ErrorKind::protocol, [&] { verdict.contribute(mine, replies); });
      continue;
    }
    net::Message message;
    message.header = read_header(in);
    const auto payload = in.take(in.below(4) * ExactSum::kBytes + in.below(2));
    message.payload = payload;
    refuses(ErrorKind::protocol, [&] {
      if (const auto total = verdict.on_message(message, replies))
        for (const ExactSum& sum : *total) [[maybe_unused]] const double value = sum.value();
    });
    require(replies.size() <= 2, "an answer to each of the others, at most");
  }
}
