#include <algorithm>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/mesh/stage_links.h>
#include <psring/worker/model/graph.h>

namespace psring::worker {

StageLinks::Sizes StageLinks::sizes_of(const Model& stage, const FlatModel& flat, bool last,
                                       const Network::Options& options) {
  const std::vector<Shape> shapes = activation_shapes(stage, 1);
  return {.input = stage.stage_input ? shapes.front().elements() : 0,
          .output = last ? 0 : shapes.back().elements(),
          .input_gradient = flat.input_is_trained(),
          .output_gradient = !last && flat.first_trained_layer() < flat.layers(),
          .type = options.types.activations,
          .max_batch = options.max_batch,
          .in_flight = options.in_flight};
}

std::uint64_t StageLinks::buffer_bytes(const Sizes& sizes) {
  const std::uint64_t elements =
      sizes.output * (1 + (sizes.output_gradient ? 1 : 0)) + sizes.input * (sizes.input_gradient ? 1 : 0);
  return kBuffers * elements * sizes.max_batch * size_bytes(sizes.type);
}

void StageLinks::predict(const Sizes& sizes, const Sampler& sampler, std::size_t worker, std::uint64_t first,
                         std::uint64_t steps, Prediction& sum) {
  sum.worker_memory[Category::communication] += buffer_bytes(sizes);
  const std::uint64_t element = size_bytes(sizes.type);
  const std::uint64_t sent = element * (sizes.output + (sizes.input_gradient ? sizes.input : 0));
  const std::uint64_t received = element * (sizes.input + (sizes.output_gradient ? sizes.output : 0));
  const std::size_t batches = sampler.batches();
  const auto passes = [&](std::size_t index, std::uint64_t step) {
    return step / batches + (index < step % batches ? 1 : 0);
  };
  // Every step moves at least the samples of the smallest batch.
  std::size_t least = sampler.batch_size(worker, 0);
  for (std::size_t index = 0; index < batches; ++index) least = std::min(least, sampler.batch_size(worker, index));
  if (sum.worker_sends) *sum.worker_sends += least * sent;
  if (sum.worker_receives) *sum.worker_receives += least * received;
  for (std::size_t index = 0; index < batches; ++index) {
    const std::uint64_t more =
        (passes(index, steps) - passes(index, first)) * (sampler.batch_size(worker, index) - least);
    sum.run_sends += more * sent;
    sum.larger_batches_send += more * sent;
    sum.run_receives += more * received;
  }
}

StageLinks::StageLinks(const Sizes& sizes, const World& world, HostNetwork& network)
    : sizes_(sizes), world_(world), groups_(*world.mesh), network_(network) {
  const auto make = [&](std::size_t elements) {
    std::vector<Message> messages(elements == 0 ? 0 : kBuffers);
    for (Message& message : messages)
      message.memory = Buffer(elements * sizes.max_batch * size_bytes(sizes.type), Category::communication,
                              world.memory, world.arena);
    return messages;
  };
  outputs_ = make(sizes.output);
  gradients_ = make(sizes.input_gradient ? sizes.input : 0);
  from_after_ = make(sizes.output_gradient ? sizes.output : 0);
}

Elements StageLinks::part(Buffer& memory, std::size_t samples, std::size_t each) const {
  return memory.elements(sizes_.type).subspan(0, samples * each);
}

void StageLinks::begin_step(std::vector<std::size_t> samples) {
  samples_ = std::move(samples);
  inputs_.assign(samples_.size(), {});
  posted_inputs_ = posted_gradients_ = taken_gradients_ = 0;
  free_inputs_ = std::min(sizes_.in_flight, samples_.size());
  post_receives();
}

/// Begins every receive that has memory: inputs lie in the network's own, which a micro-batch leaves with its backward.
void StageLinks::post_receives() {
  ring::ProcessGroup& pipeline = *groups_.pipeline;
  for (; sizes_.input > 0 && posted_inputs_ < free_inputs_; ++posted_inputs_) {
    if (samples_[posted_inputs_] == 0) continue;
    const Elements memory = network_.stage_input_of(posted_inputs_ % sizes_.in_flight);
    inputs_[posted_inputs_] =
        pipeline.recv(memory.subspan(0, samples_[posted_inputs_] * sizes_.input), groups_.stage() - 1);
  }
  const std::size_t most = std::min(taken_gradients_ + kBuffers, samples_.size());
  for (; sizes_.output_gradient && posted_gradients_ < most; ++posted_gradients_) {
    if (samples_[posted_gradients_] == 0) continue;
    Message& message = from_after_[posted_gradients_ % kBuffers];
    message.work = pipeline.recv(part(message.memory, samples_[posted_gradients_], sizes_.output), groups_.stage() + 1);
  }
}

void StageLinks::select(std::size_t micro, const Randomness& randomness) {
  network_.select(micro % sizes_.in_flight);
  network_.begin(samples_[micro], randomness);
}

void StageLinks::wait(ring::Work& work, const char* what, std::size_t stage) {
  const Moment start = world_.clock.now();
  const bool is_done = work.done();
  const Moment since = world_.clock.now();
  waited_ += since - start;  // to ask makes progress; the event begins after the events of that progress
  if (is_done) {
    world_.events.need_not_wait({.name = what});
    return;
  }
  const Activity activity{.name = what, .peer = {"stage", static_cast<std::uint32_t>(stage)}};
  const Events::Wait wait(world_.events, activity, since, waited_);
  work.wait();
}

void StageLinks::receive_input(std::size_t micro) {
  if (sizes_.input == 0 || samples_[micro] == 0) return;
  wait(inputs_[micro], "wait for input", groups_.stage() - 1);
}

void StageLinks::send(std::vector<Message>& messages, std::size_t micro, ConstElements values, std::size_t to) {
  if (messages.empty() || samples_[micro] == 0) return;
  Message& message = messages[micro % kBuffers];
  wait(message.work, "wait for send", to);
  const Elements memory = message.memory.elements(sizes_.type).subspan(0, values.size());
  copy(values, memory);
  message.work = groups_.pipeline->send(ring::Vector(memory), to);
}

void StageLinks::send_output(std::size_t micro) {
  if (outputs_.empty() || samples_[micro] == 0) return;
  send(outputs_, micro, network_.stage_output(), groups_.stage() + 1);
}

void StageLinks::receive_gradient(std::size_t micro) {
  if (sizes_.output_gradient && samples_[micro] > 0) {
    Message& message = from_after_[micro % kBuffers];
    wait(message.work, "wait for gradient", groups_.stage() + 1);
    network_.select(micro % sizes_.in_flight);
    copy(part(message.memory, samples_[micro], sizes_.output), network_.begin_backward());
  }
  taken_gradients_ = micro + 1;
  post_receives();
}

/// The micro-batch's activations are through: their memory is free for a later one.
void StageLinks::send_gradient(std::size_t micro) {
  if (!gradients_.empty() && samples_[micro] > 0)
    send(gradients_, micro, network_.stage_input_gradient(), groups_.stage() - 1);
  free_inputs_ = std::min(micro + 1 + sizes_.in_flight, samples_.size());
  post_receives();
}

void StageLinks::end_step() {
  for (Message& message : outputs_) wait(message.work, "wait for send", groups_.stage() + 1);
  for (Message& message : gradients_) wait(message.work, "wait for send", groups_.stage() - 1);
  groups_.account();
}

void StageLinks::receive_evaluated(std::size_t samples) {
  if (sizes_.input == 0) return;
  network_.select(0);
  network_.begin(samples);
  groups_.with_before->broadcast(network_.stage_input(), 0).wait();
}

void StageLinks::send_evaluated() {
  if (sizes_.output == 0) return;
  Message& message = outputs_.front();
  const ConstElements output = network_.stage_output();
  const Elements memory = message.memory.elements(sizes_.type).subspan(0, output.size());
  copy(output, memory);
  groups_.with_after->broadcast(memory, 0).wait();
}

/// The barrier comes before accounting: bytes that others read from this process count once they have been read.
void StageLinks::finish() {
  groups_.model->barrier().wait();
  groups_.account();
}

}  // namespace psring::worker
