#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/keyed/every_tenth.h>
#include <psring/worker/data/picked_samples.h>

namespace psring::worker {

DataSplit every_tenth(std::shared_ptr<const Dataset> all, std::size_t group, const std::string& source) {
  constexpr std::size_t kGroups = 10;
  const std::size_t round = kGroups * group;
  if (all->size() < round)
    fail(ErrorKind::data, "{}: {} samples, at least {} expected, as a tenth of them is the test set", source,
         all->size(), round);
  const std::size_t trained = round - group;
  const std::size_t rounds = all->size() / round;
  const std::size_t rest = std::min(all->size() % round, trained);  // of the last round, which has no test group then
  const std::size_t tested = rounds * group + all->size() % round - rest;
  return {
      picked_samples(all, rounds * trained + rest, [=](std::size_t i) { return i / trained * round + i % trained; }),
      picked_samples(all, tested, [=](std::size_t i) { return i / group * round + trained + i % group; })};
}

}  // namespace psring::worker
