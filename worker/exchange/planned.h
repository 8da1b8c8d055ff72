#pragma once

#include <memory>

#include <psring/common/device/device.h>
#include <psring/optim/device_applier.h>

namespace psring::worker {

class ServerLink;
class Tables;

/// Ability of a device: it belongs to a worker that is only planned (bench/predict), and so are its servers. Its memory
/// has addresses alone, work on it takes no time but for updates, and nothing waits in a queue.
class Planned {
 public:
  virtual ~Planned() = default;
  virtual std::unique_ptr<optim::DeviceApplier> make_applier() = 0;
  virtual std::unique_ptr<ServerLink> make_link() = 0;
  virtual std::unique_ptr<Tables> make_tables() = 0;
};

/// Null if the worker exists.
inline Planned* planned(Device* device) { return dynamic_cast<Planned*>(device); }

}  // namespace psring::worker
