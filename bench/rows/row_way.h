#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/bench/exchange/exchange.h>
#include <psring/bench/rows/drawn_batches.h>
#include <psring/common/base/layout.h>

namespace psring::bench {

/// A way to read and to update the rows of a table, with rowwise-adagrad at the owner; rows begin with zeros.
class RowWay {
 public:
  virtual ~RowWay() = default;
  /// Memory for the keys and the gradients of a batch, from where they are handed over.
  virtual std::span<std::uint64_t> keys() = 0;
  virtual std::span<float> gradients() = 0;
  /// Says which rows the first keys belong to; floors that have no index use them.
  virtual void show(std::span<const std::uint32_t> /*rows*/) {}
  /// Reads the rows of the first keys; returns once `rows` has them.
  virtual void pull(std::size_t keys) = 0;
  virtual std::span<const float> rows() const = 0;
  /// Hands the gradients of the same keys over, and waits until the owner has made the update.
  virtual void push(std::size_t keys) = 0;
  /// The processor time, in seconds, that the processes of this way have used.
  virtual double cpu_s() const { return cpu_of(0); }

 protected:
  /// The processor time of a process; 0: this one.
  static double cpu_of(int process);
};

struct RowTimes {
  double pull_s = 0;
  double push_s = 0;
  double cpu_s = 0;  ///< of both, in all processes
};

struct RowRun {
  std::vector<RowTimes> times;  ///< by batch
  std::uint64_t checksum = 0;   ///< of the bits of all rows, if they were to be checked
};

/// Pulls and pushes these batches, one after the other.
RowRun run_batches(RowWay& way, DrawnBatches& batches, Range numbers, bool check);

/// A plain loop over a plain array: what every way must compute.
std::unique_ptr<RowWay> make_reference_rows(const RowCase& which);

/// Least times of this machine between two threads, without a protocol: the owner's thread copies the keys, and reads
/// and writes the records of the rows at random places of huge pages, fetched ahead. `index`: rows are found by key in
/// one hash map (abseil's, fetched ahead); else their numbers are known. Both use the same records.
class RowFloors {
 public:
  explicit RowFloors(const RowCase& which);
  ~RowFloors();
  std::unique_ptr<RowWay> way(bool index);

 private:
  struct Records;
  std::unique_ptr<Records> records_;
};

/// The table of a case at a server of psring.
Layout row_layout(const RowCase& which);
/// `server`: its process.
std::unique_ptr<RowWay> connect_psring_rows(Kind kind, const std::string& endpoint, const std::string& key_file,
                                            int server, const RowCase& which);

}  // namespace psring::bench
