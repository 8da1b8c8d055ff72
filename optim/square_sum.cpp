#include <vector>

#include <psring/optim/device_applier.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/mixed.h>

namespace psring::optim {

void add_square_sum(ConstElements values, ExactSum& sum, DeviceApplier* applier) {
  if (applier == nullptr) return add_square_sum(values, sum);
  std::vector<double> blocks((values.size() + kCut - 1) / kCut);
  applier->square_sums(values, blocks);
  for (const double block : blocks) sum.add(block);
}

}  // namespace psring::optim
