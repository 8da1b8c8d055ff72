#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/proc/role.h>
#include <psring/optim/codec/compression.h>
#include <psring/worker/programs/server_access.h>
#include <psring/worker/state/compressor.h>
#include <psring/worker/state/error_feedback.h>
#include <psring/worker/state/run_checkpoints.h>

namespace psring::c {

/// The vector of f32 values that a job's servers own, as one worker sees it. A unit has a buffer of values, into which
/// pulls arrive, and a buffer of gradients, from which pushes leave, from the first call on that needs them; or the
/// caller names memory of its own, which may go when the pull or push is complete. Servers of this host read and write
/// memory of the arena in place. Safe for several threads. The first error is latched: later calls throw it.
///
/// If servers only average (--optimizer-on worker), a pull brings the mean gradient into the buffer of gradients.
class Vector {
 public:
  /// Bytes of payload.
  struct Moved {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  /// Throws usage if the job's options ask for something that a vector does not have. `arena` and `member` outlive it,
  /// and the links to all servers are open.
  Vector(Membership& member, Arena& arena, std::vector<UnitSpec> units);
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  const Layout& layout() const { return layout_; }
  std::span<float> values(std::size_t unit);
  std::span<float> gradients(std::size_t unit);

  /// Agrees with the servers on the layout, and begins the pull of all units in the version that the job begins with,
  /// which it returns. In a new job the vector begins with worker 0's values. If servers only average, nothing moves.
  std::uint64_t start();
  /// The first half of start: agrees with the servers on the layout. Worker 0 of a new job has to call `begin` for each
  /// unit after it.
  std::uint64_t agree();
  /// Begins the pull of a unit in the version that the job begins with. In a new job worker 0's memory holds the unit's
  /// first values. Throws usage if servers only average. Here and in `push` and `pull`, null memory is the vector's
  /// own.
  void begin(std::size_t unit, float* values);
  /// These throw usage, and change nothing, where psring/c.h says that the call is wrong.
  void push(std::size_t unit, std::uint64_t step, const float* from);
  void pull(std::size_t unit, std::uint64_t version, float* into);
  void push_pull(std::size_t unit, std::uint64_t step);
  /// Waits for the last pull of the unit, in at least this version, until the moment; returns whether it is there.
  /// Throws usage if no pull is in flight that may bring it.
  bool wait(std::size_t unit, std::uint64_t version, Moment until);
  /// Waits until the servers have the last push of the unit.
  bool wait_pushed(std::size_t unit, Moment until);
  /// Tells the servers that this worker pushes nothing more.
  void finish();
  /// Saves the servers' state after `version` updates. The call of worker 0 returns once the checkpoint is complete;
  /// the others have nothing to save.
  void save(std::uint64_t version);
  /// The job has ended here: another run may save into its checkpoints' folder.
  void end();
  /// The mean staleness of this worker's gradients since the last call.
  double take_staleness();
  /// The bytes that all pushes and pulls of this worker have moved so far, without the bytes of `start` and `begin`.
  Moved moved();
  /// The bytes that one push and one pull of the unit move.
  Moved predict(std::size_t unit) const;

 private:
  struct UnitState {
    bool begun = false;
    std::uint64_t asked = 0;    ///< the version of the last pull
    std::uint64_t due = 0;      ///< the step of the next push, which is the version that all pushes lead to
    bool push_is_pull = false;  ///< the last push was a push_pull, which the values acknowledge
  };

  void check_unit(std::size_t unit) const;
  // These throw usage if the call is wrong now. They need the servers' lock.
  void check_push(std::size_t unit, std::uint64_t step) const;
  void check_pull(std::size_t unit, std::uint64_t version) const;
  void check_no_pull(std::size_t unit) const;
  void check_begun(std::size_t unit) const;
  /// Does the vector begin with the values of this worker?
  bool has_first_values() const;
  /// Have the servers taken the unit's last push?
  bool taken(std::size_t unit) const;
  /// The unit's buffer, which the first call makes.
  std::span<float> buffer(std::vector<Buffer> Vector::*buffers, std::size_t unit, Category category);
  Elements target(std::size_t unit, float* memory);
  ConstElements pushed(std::size_t unit, std::uint64_t step, const float* memory);
  /// Throws usage if `agree` and `start` were not called.
  void require_agreed() const;
  void make_compression();
  /// At worker 0: compares the job with the checkpoint of --resume, and takes the folder of its own.
  void begin_checkpoints();
  std::vector<optim::SavedTensor> tensors() const;

  Membership& member_;
  Arena& arena_;
  const Layout layout_;
  const Consistency consistency_;
  const bool servers_update_;
  std::unique_ptr<optim::Optimizer> rule_;
  std::unique_ptr<optim::Codec> codec_;  ///< null: gradients are not compressed
  std::optional<worker::ErrorFeedback> feedback_;
  std::optional<worker::Compressor> compressor_;

  Mutex checkpoints_mutex_;  ///< taken last
  /// Worker 0's, if the job saves any, until it has ended here.
  std::optional<worker::RunCheckpoints> checkpoints_ PSRING_GUARDED_BY(checkpoints_mutex_);

  Mutex memory_mutex_;
  // A buffer stays where it is.
  std::vector<Buffer> values_ PSRING_GUARDED_BY(memory_mutex_);
  std::vector<Buffer> gradients_ PSRING_GUARDED_BY(memory_mutex_);

  std::optional<worker::ServerAccess> servers_;
  worker::PsClient* client_ = nullptr;  ///< of servers_
  // Guarded by the servers' lock.
  bool agreed_ = false;
  bool finished_ = false;
  std::optional<std::uint64_t> saved_;  ///< the last version that was saved
  std::vector<UnitState> units_;
};

}  // namespace psring::c
