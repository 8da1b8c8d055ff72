#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/worker/data/sampler.h>
#include <psring/worker/exchange/mesh/mesh_groups.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/model/host_network.h>

namespace psring::worker {

/// The links of a pipeline's stage to the stages before and after it: activations go forward, and their gradients come
/// back, one message for each micro-batch. Sends leave from buffers of their own, so that they are on their way while
/// the stage computes; receives begin as soon as there is memory for them. Messages are in the activations' type.
class StageLinks {
 public:
  /// The elements that pass between this stage and its neighbours for one sample, and the memory for them.
  struct Sizes {
    std::size_t input = 0;         ///< elements of one sample's input from the stage before; 0: this is the first stage
    std::size_t output = 0;        ///< elements of one sample's output to the stage after; 0: this is the last stage
    bool input_gradient = false;   ///< the stage before wants the gradient of its output
    bool output_gradient = false;  ///< this stage wants the gradient of its output
    DType type = DType::f32;
    std::size_t max_batch = 1;  ///< samples of a micro-batch
    std::size_t in_flight = 1;  ///< see Network::Options
  };
  /// Returns the sizes of the stage that has these layers of a model.
  static Sizes sizes_of(const Model& stage, const FlatModel& flat, bool last, const Network::Options& options);

  /// The bytes of the buffers, booked as Category::communication.
  static std::uint64_t buffer_bytes(const Sizes& sizes);
  /// Adds the bytes that the steps [first, steps) move, and the buffers. `worker`: this worker's data rank.
  static void predict(const Sizes& sizes, const Sampler& sampler, std::size_t worker, std::uint64_t first,
                      std::uint64_t steps, Prediction& sum);

  /// REQUIRES: World::mesh; all arguments outlive the links.
  StageLinks(const Sizes& sizes, const World& world, HostNetwork& network);
  /// Waits for nothing. REQUIRES: `finish` was called, unless an error ended the job.
  ~StageLinks() = default;

  /// Begins a step. `samples`: of each micro-batch. A micro-batch without samples moves nothing.
  void begin_step(std::vector<std::size_t> samples);
  /// Makes the network compute micro-batch `micro`: its memory, and its number of samples.
  void select(std::size_t micro, const Randomness& randomness);

  /// On return the network's input is there.
  void receive_input(std::size_t micro);
  void send_output(std::size_t micro);
  /// Backward of `micro` begins: on return the gradient of the network's output is there. Also for the last stage.
  void receive_gradient(std::size_t micro);
  void send_gradient(std::size_t micro);
  /// All messages of the step have left.
  void end_step();

  /// Evaluation of a batch: receives the input, or sends the output. Control traffic.
  void receive_evaluated(std::size_t samples);
  void send_evaluated();
  /// On return the neighbours have read all that this stage sent.
  void finish();

  /// The time that this stage has waited for its neighbours within steps.
  Nanoseconds waited() const { return waited_; }

 private:
  struct Message {
    Buffer memory;
    ring::Work work;
  };
  static constexpr std::size_t kBuffers = 2;  ///< of each kind of message: one is filled while the other is on its way

  Elements part(Buffer& memory, std::size_t samples, std::size_t each) const;
  void post_receives();
  void wait(ring::Work& work, const char* what, std::size_t stage);
  void send(std::vector<Message>& messages, std::size_t micro, ConstElements values, std::size_t to);

  const Sizes sizes_;
  const World& world_;
  const MeshGroups& groups_;
  HostNetwork& network_;
  std::vector<Message> outputs_;      ///< to the stage after
  std::vector<Message> gradients_;    ///< to the stage before
  std::vector<Message> from_after_;   ///< gradients from the stage after
  std::vector<ring::Work> inputs_;    ///< by micro-batch: receives into the network's own memory
  std::vector<std::size_t> samples_;  ///< by micro-batch
  std::size_t posted_inputs_ = 0;     ///< micro-batches of this step whose receive has begun
  std::size_t posted_gradients_ = 0;
  std::size_t taken_gradients_ = 0;  ///< micro-batches of this step whose gradient was copied to the network
  std::size_t free_inputs_ = 0;      ///< micro-batches before this one have memory for their input
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
