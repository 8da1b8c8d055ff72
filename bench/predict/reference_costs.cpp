#include <psring/bench/predict/fit.h>

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
constexpr const char* kMachine = "two cores of an AMD EPYC with AVX-512";
constexpr std::size_t kProcessors = 2;
constexpr double kSleep = 7.92e-05;
constexpr ReferenceCost kCosts[] = {
    {"batch.server.shaped", 2.45e-05, 3e-10, "byte"},
    {"batch.server.shm", 1.11e-06, 4.1e-11, "byte"},
    {"batch.server.tcp", 1.03e-05, 2.89e-10, "byte"},
    {"batch.server.tcp-encrypted", 1.08e-05, 1.69e-09, "byte"},
    {"hop.ring.shaped", 0.000123, 1.56e-10, "byte"},
    {"hop.ring.tcp", 4.52e-06, 9.22e-11, "byte"},
    {"hop.ring.tcp-encrypted", 7.64e-06, 1.19e-09, "byte"},
    {"hop.server.shaped", 0.00014, 1.34e-10, "byte"},
    {"hop.server.shm", 6.9e-07, 1.34e-11, "byte"},
    {"hop.server.tcp", 2.75e-05, 1.79e-10, "byte"},
    {"hop.server.tcp-encrypted", 2.77e-05, 1.5e-09, "byte"},
    {"memory.copy", 0, 9.72e-12, "byte"},
    {"server.aggregate", 0, 5.83e-11, "element"},
    {"update.adagrad", 0, 2.37e-10, "element"},
    {"update.adam", 0, 2.51e-10, "element"},
    {"update.adamw", 0, 2.44e-10, "element"},
    {"update.lamb", 0, 2.49e-10, "element"},
    {"update.rmsprop", 0, 2.38e-10, "element"},
    {"update.sgd", 0, 6.61e-11, "element"},
    {"update.sgd-momentum", 0, 1.02e-10, "element"},
    {"work.ring.shaped", 5.01e-05, 3.52e-10, "byte"},
    {"work.ring.tcp", 1e-05, 3.67e-10, "byte"},
    {"work.ring.tcp-encrypted", 1.34e-05, 1.67e-09, "byte"},
    {"work.server.shaped", 6.22e-05, 2.89e-10, "byte"},
    {"work.server.shm", 5.99e-06, 3.21e-11, "byte"},
    {"work.server.tcp", 2.62e-05, 2.3e-10, "byte"},
    {"work.server.tcp-encrypted", 2.67e-05, 1.61e-09, "byte"},
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
