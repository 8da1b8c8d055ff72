#include <psring/bench/cost/reference_costs.h>

namespace psring::bench {
namespace {

/// One cost, and the unit of its size.
struct ReferenceCost {
  const char* name;
  double fixed_s;
  double per_unit_s;
  const char* unit;
};

// Medians of three runs of `psring fit --out FILE`, which measures every line of this table and the sleep below.
constexpr const char* kMachine = "two cores of an Intel Xeon at 2.8 GHz (Ice Lake)";
constexpr std::size_t kProcessors = 2;
constexpr double kSleep = 9.8e-05;
constexpr ReferenceCost kCosts[] = {
    {"batch.server.shaped", 2.4e-05, 6.17e-10, "byte"},
    {"batch.server.shm", 1.93e-06, 5.53e-11, "byte"},
    {"batch.server.tcp", 1.66e-05, 5.69e-10, "byte"},
    {"batch.server.tcp-encrypted", 1.74e-05, 2.88e-09, "byte"},
    {"hop.ring.shaped", 0.000141, 4.25e-10, "byte"},
    {"hop.ring.tcp", 5.41e-06, 1.76e-10, "byte"},
    {"hop.ring.tcp-encrypted", 6.33e-06, 2.32e-09, "byte"},
    {"hop.server.shaped", 0.000143, 3.54e-10, "byte"},
    {"hop.server.shm", 1.5e-06, 1.55e-11, "byte"},
    {"hop.server.tcp", 2.33e-05, 2.47e-10, "byte"},
    {"hop.server.tcp-encrypted", 2.67e-05, 3.06e-09, "byte"},
    {"memory.copy", 0, 1.34e-11, "byte"},
    {"server.aggregate", 0, 1.61e-10, "element"},
    {"update.adagrad", 0, 4.99e-10, "element"},
    {"update.adam", 0, 6.76e-10, "element"},
    {"update.adamw", 0, 6.61e-10, "element"},
    {"update.lamb", 0, 6.17e-10, "element"},
    {"update.rmsprop", 0, 4.9e-10, "element"},
    {"update.sgd", 0, 2.12e-10, "element"},
    {"update.sgd-momentum", 0, 2.95e-10, "element"},
    {"work.ring.shaped", 6.28e-05, 6.04e-10, "byte"},
    {"work.ring.tcp", 9.81e-06, 6.42e-10, "byte"},
    {"work.ring.tcp-encrypted", 1.63e-05, 2.52e-09, "byte"},
    {"work.server.shaped", 9.04e-05, 4.94e-10, "byte"},
    {"work.server.shm", 4.83e-06, 4.79e-11, "byte"},
    {"work.server.tcp", 4.4e-05, 4.88e-10, "byte"},
    {"work.server.tcp-encrypted", 4.64e-05, 3.35e-09, "byte"},
};

Fit make() {
  Fit fit{.host = "reference", .processor = kMachine, .processors = kProcessors};
  for (const ReferenceCost& cost : kCosts)
    fit.lines[cost.name] = {.fixed_s = cost.fixed_s, .per_unit_s = cost.per_unit_s, .unit = cost.unit};
  fit.factors["sleep_s"] = kSleep;
  return fit;
}

}  // namespace

const Fit& reference_fit() {
  static const Fit fit = make();
  return fit;
}

}  // namespace psring::bench
