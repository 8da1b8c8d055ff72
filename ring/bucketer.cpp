#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/ring/bucketer.h>

namespace psring::ring {

Bucketer::Bucketer(const std::vector<std::size_t>& bytes, std::size_t bucket_bytes, std::size_t first_bytes,
                   BucketOrder order)
    : bytes_(bytes), ready_(bytes.size(), false) {
  const std::size_t units = bytes.size();
  std::size_t taken = 0;
  const auto next = [&] { return bytes[order == BucketOrder::reverse ? units - 1 - taken : taken]; };
  while (taken < units) {
    const std::size_t limit = buckets_.empty() ? std::min(first_bytes, bucket_bytes) : bucket_bytes;
    const std::size_t start = taken;
    std::size_t size = 0;
    for (; taken < units && (size == 0 || size < limit || next() == 0); ++taken) size += next();
    buckets_.push_back(order == BucketOrder::reverse ? Range{units - taken, units - start} : Range{start, taken});
  }
  begin_step();
}

void Bucketer::begin_step() {
  std::fill(ready_.begin(), ready_.end(), false);
  waits_.clear();
  for (const Range bucket : buckets_) {
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(bucket.begin);
    const auto end = bytes_.begin() + static_cast<std::ptrdiff_t>(bucket.end);
    waits_.push_back(static_cast<std::size_t>(end - begin - std::count(begin, end, std::size_t{0})));
  }
  launched_ = 0;
}

std::size_t Bucketer::ready(std::size_t unit) {
  check(!ready_.at(unit), "unit {} is ready twice in a step", unit);
  ready_[unit] = true;
  const auto holds = [&](const Range& bucket) { return bucket.contains({unit, unit + 1}); };
  if (bytes_[unit] > 0)
    --waits_[static_cast<std::size_t>(std::find_if(buckets_.begin(), buckets_.end(), holds) - buckets_.begin())];
  while (launched_ < buckets_.size() && waits_[launched_] == 0) ++launched_;
  return launched_;
}

}  // namespace psring::ring
