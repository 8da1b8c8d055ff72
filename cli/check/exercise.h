#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// The interface between the C++ exercises of docs/exercises and `psring check`. A solution is one source that defines
/// the functions of its exercise. psring compiles it, loads it, and calls the functions at all ranks of a simulated
/// network, each rank in a thread of its own. All ranks run the same code, so keep no global variables.
namespace psring::exercise {

/// A rank's links to the other ranks.
class Link {
 public:
  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;
  /// Sends a copy of the values to the rank `to`, and returns at once.
  virtual void send(std::size_t to, std::span<const float> values) = 0;
  /// Waits for the next message of the rank `from`, and stores it. The message has to have values.size() values.
  virtual void recv(std::size_t from, std::span<float> values) = 0;

 protected:
  ~Link() = default;
};

/// The number of an operation in flight.
using Operation = std::size_t;

/// One of n workers that train the same model on different samples. The parameters of all layers lie in one vector,
/// layer after layer, and so do the gradients.
class Worker {
 public:
  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;
  virtual std::size_t layers() const = 0;

  /// The parameters of the layers [first, last).
  virtual std::span<float> parameters(std::size_t first, std::size_t last) = 0;
  /// The gradients of the layers [first, last): the mean over this worker's samples, once `backward` has computed them.
  virtual std::span<float> gradients(std::size_t first, std::size_t last) = 0;
  virtual float learning_rate() const = 0;

  /// Runs the forward pass of all layers.
  virtual void forward() = 0;
  /// Computes the gradient of a layer. Call it once for each layer, from the last to the first.
  virtual void backward(std::size_t layer) = 0;

  // Collectives: every worker starts the same operations, with the same sizes, in the same order. They go on while the
  // worker computes. Until `wait` has returned, the values belong to the operation.

  /// The values become the sum over all workers.
  virtual Operation start_all_reduce(std::span<float> values) = 0;
  /// Part r of worker r's values becomes the sum over all workers; the other parts become undefined. There are n equal
  /// parts.
  virtual Operation start_reduce_scatter(std::span<float> values) = 0;
  /// Every worker gets part r from worker r, for all r.
  virtual Operation start_all_gather(std::span<float> values) = 0;
  virtual void wait(Operation operation) = 0;

  /// Returns a vector of this size that keeps its values from step to step; it is zero in the first step. Call it once
  /// for each vector in each step, in the same order. psring counts these bytes.
  virtual std::span<float> state(std::size_t vector, std::size_t elements) = 0;
  /// The number of this step, from 1.
  virtual std::size_t step() const = 0;

 protected:
  ~Worker() = default;
};

/// The bytes that one rank keeps in a step, by category.
struct MemoryBytes {
  std::uint64_t parameters = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
};

/// A job whose memory is asked for.
struct MemoryQuestion {
  std::uint64_t elements = 0;  ///< trainable parameters, a multiple of 256 n
  std::uint64_t workers = 1;   ///< n
  unsigned stage = 0;          ///< of ZeRO: 0 is plain data parallelism, 3 is FSDP
  bool adam = false;           ///< false: plain SGD, without momentum
  bool mixed = false;          ///< bf16 parameters and gradients, with master weights in f32; false: all in f32
};

/// A host with workers, as torchrun and its relatives describe it.
struct Place {
  std::size_t rank = 0;        ///< among all workers of the job
  std::size_t local_rank = 0;  ///< among the workers of this host
  std::size_t workers = 1;     ///< of the job
  std::size_t local_workers = 1;
};

/// A block of values in 8 bits: value = scale * (code - zero_point).
struct Quantized {
  std::vector<std::uint8_t> codes;
  float scale = 1;
  std::uint8_t zero_point = 0;
};

/// A matrix, stored row after row.
template <class T>
struct MatrixOf {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::span<T> values;

  T& at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};
using Matrix = MatrixOf<float>;
using ConstMatrix = MatrixOf<const float>;

/// One rank of a tensor-parallel group.
class TensorRank {
 public:
  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;
  /// The values become the sum over all ranks. Every rank makes the same calls, with the same sizes, in the same order.
  virtual void all_reduce(std::span<float> values) = 0;

 protected:
  ~TensorRank() = default;
};

/// A rank's part of two layers, y = relu(x A) B + c. A is cut by columns, and B by rows: the rank has some columns of A
/// and the rows of B with the same numbers. x, c, y, and their gradients are whole at every rank.
struct TensorPair {
  ConstMatrix x;  ///< batch x inputs
  ConstMatrix a;  ///< inputs x part: this rank's columns
  ConstMatrix b;  ///< part x outputs: this rank's rows
  ConstMatrix c;  ///< 1 x outputs: the bias

  Matrix hidden;  ///< batch x part: relu(x A), which forward stores and backward reads
  Matrix y;       ///< batch x outputs: the result of forward

  ConstMatrix dy;         ///< the gradient of y: the same at every rank
  Matrix dx, da, db, dc;  ///< the results of backward, of the shapes of x, a, b and c
};

/// One stage of a pipeline: some layers of the model, which compute one micro-batch at a time. The loss of a step is
/// the mean over its micro-batches.
class Stage {
 public:
  virtual std::size_t stage() const = 0;
  virtual std::size_t stages() const = 0;
  virtual std::size_t micro_batches() const = 0;
  /// The values of a micro-batch's activation, which is as large between all stages; so is its gradient.
  virtual std::size_t width() const = 0;

  /// Memory for the input of a micro-batch's forward, which lasts until `backward` of this micro-batch. At stage 0 it
  /// has the samples; at the others it is what the stage before has computed, once it was received. psring counts how
  /// many micro-batches a stage keeps.
  virtual std::span<float> input(std::size_t micro_batch) = 0;
  /// Computes the activation of a micro-batch from its input. Valid until the next call of `forward`.
  virtual std::span<const float> forward(std::size_t micro_batch) = 0;
  /// The gradient of a micro-batch's loss for the activation of the last stage. Call it there, after `forward`. Valid
  /// until the next call.
  virtual std::span<const float> loss_gradient(std::size_t micro_batch) = 0;
  /// Computes from the gradient for the stage's activation the gradient for its input, which is returned, and the one
  /// for its parameters: `micro_gradients`. Frees the input. Both are valid until the next call of `backward`.
  virtual std::span<const float> backward(std::size_t micro_batch, std::span<const float> activation_gradient) = 0;
  /// The gradients of the last micro-batch that has run backward, of its loss alone.
  virtual std::span<const float> micro_gradients() const = 0;

  /// The gradients of the step, for the stage's parameters: zeros, until your code writes them.
  virtual std::span<float> gradients() = 0;

  /// Sends a copy of the values to another stage, and returns at once.
  virtual void send(std::size_t to, std::span<const float> values) = 0;
  /// Waits for the next message of another stage, and stores it.
  virtual void recv(std::size_t from, std::span<float> values) = 0;

 protected:
  ~Stage() = default;
};

/// A worker's batch in one table: the hashed key of each lookup, and the gradient of the row that it read.
struct Lookups {
  std::span<const std::uint64_t> keys;
  ConstMatrix gradients;  ///< keys.size() x width
};

/// The gradients of rows that a worker pushes to one server.
struct RowPush {
  std::vector<std::uint64_t> keys;  ///< hashed
  std::vector<float> gradients;     ///< a row of `width` values for each key
};

/// The rows of one server.
class RowTable {
 public:
  virtual std::size_t width() const = 0;
  virtual float learning_rate() const = 0;
  /// The values of a key's row. A row that is not there begins to exist, with its initial values.
  virtual std::span<float> row(std::uint64_t key) = 0;

 protected:
  ~RowTable() = default;
};

}  // namespace psring::exercise

extern "C" {
void reduce_scatter(psring::exercise::Link& link, std::span<float> values);  // exercise 01
void all_gather(psring::exercise::Link& link, std::span<float> values);      // exercise 01
void train_step(psring::exercise::Worker& worker);                           // exercises 02, 03, 07 and 11
/// Exercise 04: the samples of a worker in an epoch, in their order. `order` is the shuffled order of all samples.
void samples_of(const psring::exercise::Place& place, std::span<const std::uint32_t> order,
                std::vector<std::uint32_t>& samples);
void memory_of(const psring::exercise::MemoryQuestion& job, psring::exercise::MemoryBytes& bytes);  // exercise 06
void quantize(std::span<const float> values, psring::exercise::Quantized& block);                   // exercise 10
void dequantize(const psring::exercise::Quantized& block, std::span<float> values);                 // exercise 10
void tensor_forward(psring::exercise::TensorRank& rank, psring::exercise::TensorPair& pair);        // exercise 13
void tensor_backward(psring::exercise::TensorRank& rank, psring::exercise::TensorPair& pair);       // exercise 13
void pipeline_step(psring::exercise::Stage& stage);                                                 // exercise 14
/// Exercise 15: fills in what a worker pushes to each server.
void push_rows(const psring::exercise::Lookups& batch, std::span<psring::exercise::RowPush> servers);
/// Exercise 15: one update of a server's rows, by what each worker has pushed to it.
void update_rows(psring::exercise::RowTable& table, std::span<const psring::exercise::RowPush> workers);
}
