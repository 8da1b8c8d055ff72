#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include <psring/common/base/text/json.h>

namespace psring::bench {

/// A measurement: the time of work of a size.
struct TimedSize {
  double size = 0;  ///< bytes, FLOPs, elements ...
  double seconds = 0;
  double elements = 0;  ///< a second size, of layers: the elements that a pass reads and writes
};

/// A cost that was fitted by least squares of the relative errors:
/// seconds = fixed_s + per_unit_s * size + per_element_s * elements.
struct CostLine {
  double fixed_s = 0;
  double per_unit_s = 0;
  double per_element_s = 0;
  std::string unit = {};    ///< "byte", "FLOP", "element"
  std::size_t points = 0;   ///< measurements; 0: the numbers were given, not measured
  double median_error = 0;  ///< relative, of the line at the measured sizes
  double worst_error = 0;
  double fixed_error = 0;     ///< half of the 95 % confidence interval of fixed_s, relative; 0 where fixed_s is 0
  double per_unit_error = 0;  ///< the same of per_unit_s
  double most = 0;            ///< the largest size that was measured

  double seconds(double size, double elements = 0) const {
    return fixed_s + per_unit_s * size + per_element_s * elements;
  }
  /// False if the line does not describe the measurements: the median error is above 10 %, or there are fewer than 4.
  bool good() const { return points == 0 || (points >= 4 && median_error <= 0.10); }
};

/// Fits a line without negative costs: of all sets of terms whose least squares have none, the one with the smallest
/// residual. REQUIRES: two sizes at least, all times above 0.
CostLine fit_line(std::span<const TimedSize> measured, const std::string& unit);

// In the lines batch.WAY: the number of servers to which a worker sends, and of messages in a row to each.
inline constexpr std::size_t kBatchOfMessages = 8;
inline constexpr std::size_t kMessagesInRow = 4;

/// The measured costs of a host, or of a pair of hosts: a file of `psring fit`.
///
///   {"format": "psring-fit", "version": 3, "program": ..., "host": ..., "processors": 2,
///    "lines": {"hop.ring.tcp": {"unit": "byte", "fixed_s": 1e-5, "per_unit_s": 4e-10, "points": 9, ...}, ...},
///    "factors": {"slowdown": 1.1, "deviation": 0.01, "sleep_s": 6e-5},
///    "all_reduce": [...], "all_reduce_over": "loopback"}
///
/// "all_reduce" has the rows of a ring::Tuning, which psring-bench --tune adds; so the file is one for --tuning, too.
/// All rows were measured over one network: "loopback", "link 100 Mbit/s, 1 ms" or "hosts", with ", encrypted".
///
/// Lines (docs/guide/planning.md has what each is for):
///   hop.WAY      time of a message from one process to another, beyond what the card needs for its bytes
///   work.WAY     processor time of a message, at both ends together
///   batch.WAY    the same if a worker sends some messages in a row to several servers: most find their receiver awake
///                WAY: ring.tcp, ring.tcp-encrypted, ring.shaped, server.shm, server.tcp, server.tcp-encrypted,
///                server.shaped
///   link.peer    latency and time per byte of the network to another host
///   server.aggregate, update.OPTIMIZER   by elements
///   compute.LAYER.PASS.TYPE              a layer's pass, by FLOPs and elements
///   memory.copy  by bytes
struct Fit {
  std::string program = {};
  std::string host = {};
  std::string processor = {};
  std::size_t processors = 0;
  std::map<std::string, CostLine> lines = {};
  std::map<std::string, double> factors = {};  ///< numbers without a size
  std::string tuning = {};                     ///< a ring::Tuning as JSON; empty: not measured
  std::string tuned_over = {};                 ///< the network of the tuning

  const CostLine* find(const std::string& name) const;
  /// Returns a line that a prediction needs. Throws usage, naming the line and the command that measures it.
  const CostLine& line(const std::string& name) const;
  /// Returns a factor that a prediction needs. Throws usage, as `line` does.
  double factor(const std::string& name) const;
};

Json to_json(const Fit& fit);
/// Returns a fit without costs: this host's name and processor.
Fit fit_of_host();
/// Throws data, naming the flag and the file.
Fit load_fit(const char* flag, const std::string& file);
/// Returns the fit to which `host` may add costs: that of the file, or an empty one if the file does not exist. Throws
/// data, also if the file has the costs of another host.
Fit open_fit(const char* flag, const std::string& file, const std::string& host);
/// Adds the lines, factors and tuning of `more` to the file, in place of older ones of the same name. A file that does
/// not exist is begun. Throws data, as open_fit does.
void add_to_fit(const char* flag, const std::string& file, const Fit& more);

/// The costs of messages, sums and updates that `psring fit` measured on the reference machine: predictions use them if
/// no fit is given. It has no times of layers. `processor` and `processors` name the machine.
const Fit& reference_fit();

}  // namespace psring::bench
