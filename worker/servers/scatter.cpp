#include <algorithm>

#include <psring/worker/servers/scatter.h>

namespace psring::worker {

Scatter::Scatter(const Dataset& data, ring::ProcessGroup& group, std::size_t batch, MemoryLedger& ledger,
                 const Clock& clock)
    : data_(data),
      group_(group),
      batch_(batch),
      clock_(clock),
      inputs_(places() * data.input_cols() * sizeof(float), Category::communication, ledger),
      targets_(places() * data.targets_per_sample() * sizeof(std::int32_t), Category::communication, ledger) {
  if (data.target_values() > 0)
    values_ = Buffer(places() * data.target_values() * sizeof(float), Category::communication, ledger);
}

std::size_t Scatter::places() const { return reads() ? (group_.size() - 1) * batch_ : batch_; }

std::size_t Scatter::sample_bytes() const {
  return data_.input_cols() * sizeof(float) + data_.targets_per_sample() * sizeof(std::int32_t) +
         data_.target_values() * sizeof(float);
}

std::span<float> Scatter::inputs(std::size_t place, std::size_t samples) {
  return inputs_.as<float>().subspan(place * data_.input_cols(), samples * data_.input_cols());
}

std::span<std::int32_t> Scatter::targets(std::size_t place, std::size_t samples) {
  return targets_.as<std::int32_t>().subspan(place * data_.targets_per_sample(), samples * data_.targets_per_sample());
}

std::span<float> Scatter::values(std::size_t place, std::size_t samples) {
  if (data_.target_values() == 0) return {};
  return values_.as<float>().subspan(place * data_.target_values(), samples * data_.target_values());
}

void Scatter::begin_step(const Sampler& sampler, std::size_t index) {
  const Moment start = clock_.now();
  std::vector<ring::Work> works;
  for (std::size_t worker = 1; worker < group_.size(); ++worker) {
    const auto samples = sampler.batch(worker, index);
    if (samples.empty() || !(reads() || worker == group_.rank())) continue;
    const std::size_t first = reads() ? (worker - 1) * batch_ : 0;
    if (reads()) {
      for (std::size_t i = 0; i < samples.size(); ++i)
        data_.read(samples[i], {inputs(first + i, 1), targets(first + i, 1), values(first + i, 1)});
      works.push_back(group_.send(inputs(first, samples.size()), worker));
      works.push_back(group_.send(targets(first, samples.size()), worker));
      if (data_.target_values() > 0) works.push_back(group_.send(values(first, samples.size()), worker));
    } else {
      works.push_back(group_.recv(inputs(first, samples.size()), 0));
      works.push_back(group_.recv(targets(first, samples.size()), 0));
      if (data_.target_values() > 0) works.push_back(group_.recv(values(first, samples.size()), 0));
      place_of_.clear();
      for (std::size_t i = 0; i < samples.size(); ++i) place_of_[samples[i]] = i;
    }
  }
  for (ring::Work& work : works) work.wait();
  group_.account();  // samples that the others have read so far
  waited_ += clock_.now() - start;
}

void Scatter::finish() {
  group_.barrier().wait();
  group_.account();
}

void Scatter::read(std::size_t index, const SampleMemory& to) const {
  if (reads()) return data_.read(index, to);
  const std::size_t place = place_of_.at(index);
  const auto copy = [&](const Buffer& from, auto values) {
    using Value = typename decltype(values)::value_type;
    if (values.empty()) return;
    std::copy_n(from.as<Value>().begin() + static_cast<std::ptrdiff_t>(place * values.size()), values.size(),
                values.begin());
  };
  copy(inputs_, to.input);
  copy(targets_, to.classes);
  copy(values_, to.values);
}

void Scatter::predict(const Sampler& sampler, std::uint64_t first, std::uint64_t steps, Prediction& sum) const {
  const std::size_t batches = sampler.batches();
  const auto until = [&](std::size_t index, std::uint64_t step) {
    return step / batches + (index < step % batches ? 1 : 0);
  };
  for (std::size_t index = 0; index < batches; ++index) {
    const std::uint64_t times = until(index, steps) - until(index, first);
    for (std::size_t worker = 1; worker < group_.size(); ++worker) {
      const std::uint64_t bytes = times * sampler.batch_size(worker, index) * sample_bytes();
      if (reads()) sum.run_sends += bytes;
      if (worker == group_.rank()) sum.run_receives += bytes;
    }
  }
  sum.worker_memory[Category::communication] += inputs_.size_bytes() + targets_.size_bytes() + values_.size_bytes();
}

}  // namespace psring::worker
