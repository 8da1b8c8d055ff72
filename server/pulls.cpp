#include <psring/server/pulls.h>

namespace psring::server {

void AnswerCopies::open() {
  if (options_.optimizer == nullptr || options_.consistency.exact()) return;
  by_worker_.resize(options_.workers);
  if (!options_.remedy.keeps_answers()) return;
  const std::size_t bytes = store_.trained_elements() * size_bytes(store_.layout().parameter_type);
  for (Buffer& copy : by_worker_) copy = Buffer(bytes, Category::optimizer, ledger_);
}

void AnswerCopies::begin_with(Range place, std::span<const float> values) {
  for (std::size_t worker = 0; worker < by_worker_.size(); ++worker)
    if (by_worker_[worker].size_bytes() > 0) narrow(values, copy_of(worker).part(place));
}

ConstElements AnswerCopies::keep(std::size_t worker, Range place, ConstElements values, bool sent_from_here) {
  if (by_worker_.empty()) return {};
  Buffer& buffer = by_worker_[worker];
  if (buffer.size_bytes() == 0 && sent_from_here)
    buffer = Buffer(store_.trained_elements() * size_bytes(values.type()), Category::communication, ledger_);
  if (buffer.size_bytes() == 0) return {};
  const Elements kept = copy_of(worker).part(place);
  copy(values, kept);
  return kept;
}

}  // namespace psring::server
