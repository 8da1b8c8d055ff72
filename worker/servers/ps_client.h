#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/events/events.h>
#include <psring/common/net/outbox.h>
#include <psring/common/net/transport.h>
#include <psring/worker/servers/client_protocol.h>

namespace psring::worker {

/// The bytes of an arena for the parameters and gradients of all units, and for a rank's own part of the gradients. The
/// sum includes units that are not trained, since units that come and go leave gaps. Unused bytes take no memory.
std::size_t lent_bytes(const Layout& layout);

/// By how much a worker's window to each server (net::Outbox) is larger than the link's, by server; empty: equal
/// windows. A worker's card carries pushes and, with colocated servers, answers. If every server had an equal part of a
/// busy card, the pushes to the largest servers would end last, while their cards waited.
std::vector<double> window_weights(const CutWeights& weights);

/// Push and pull against the servers of a job. Starting calls never wait; frames leave in priority order
/// (units in forward order), moved on by `progress`, by every starting call and by the waits. A worker
/// reads its own writes: a pull names the version that it wants. Belongs to one thread.
class PsClient {
 public:
  struct Options {
    ClientProtocol::Mark mark;                    ///< see ClientProtocol; may be empty
    std::function<void()> check;                  ///< throws where the job has failed; asked while waiting
    Nanoseconds op_timeout = Nanoseconds::max();  ///< of one wait
    std::size_t first_owner = 0;                  ///< see ClientProtocol
    std::optional<std::size_t> own_server = {};   ///< in this process; its pushes leave last: see net::HeldFrames
    const optim::Codec* codec = nullptr;          ///< see ClientProtocol
    bool copied_pushes = false;                   ///< see ClientProtocol; for callers that choose the order of units
    Events* events = nullptr;                     ///< gets an event for each transfer; null: no events
  };

  PsClient(net::Transport& transport, const Clock& clock, Layout layout, Options options);

  const Layout& layout() const { return protocol_.layout(); }

  /// Declares the layout to all servers and waits until they have taken it. If `initial` is not null (only worker 0 may
  /// pass it, and all workers must pass `initial_by_worker`), it is called for each unit, and the initial values are
  /// sent. If the job is past its beginning (`version`), the servers have the values already.
  void open(std::uint64_t seed, bool initial_by_worker = false,
            const std::function<std::span<const float>(std::size_t unit)>& initial = nullptr);
  /// Sends the initial values of one unit, for a caller that does not hold all units at once and gave `open` no
  /// function for them. The values must stay until a pull of the unit has arrived. REQUIRES: worker 0 of a job at its
  /// beginning, open with `initial_by_worker`.
  void send_initial(std::size_t unit, std::span<const float> values);
  /// Once open; see ClientProtocol.
  std::uint64_t version() const { return protocol_.version(); }
  std::span<const std::byte> loss_scale() const { return protocol_.loss_scale(); }

  /// The step of later pulls, for tracing.
  void begin_step(std::uint64_t step) { step_ = step; }
  void push(std::size_t unit, std::uint64_t step, ConstElements gradient, std::size_t micro = 0);
  void pull(std::size_t unit, std::uint64_t version, Elements into, bool start_up = false);
  void push_pull(std::size_t unit, std::uint64_t step, ConstElements gradient, Elements into);

  /// For another protocol with the same servers (RowClient), whose receiver returns whether it takes a message. Null:
  /// there is none.
  void set_receiver(std::function<bool(const net::Message&)> receiver) { receiver_ = std::move(receiver); }
  const ClientProtocol::Mark& mark() const { return options_.mark; }
  /// Calls `begin`, and sends the frames that it adds. `what`: their name in errors.
  void send(const std::function<void(ClientProtocol::Frames&)>& begin, const std::function<std::string()>& what);
  /// Waits until `done`, with the errors of the other waits. `what`: the name of the awaited thing.
  void wait(const std::function<bool()>& done, const std::function<std::string()>& what);

  /// Waits until the unit has arrived in at least this version. Throws peer_lost and timeout, which name the awaited
  /// unit, and protocol.
  void wait(std::size_t unit, std::uint64_t version);
  bool has(std::size_t unit, std::uint64_t version) const { return protocol_.has(unit, version); }
  /// Has an answer to a pull of the unit ever arrived?
  bool arrived(std::size_t unit) const { return protocol_.arrived(unit); }
  /// Is a pull of the unit in flight? There is one at a time.
  bool pulling(std::size_t unit) const { return protocol_.pulling(unit); }
  /// Did the update that led to this version, the last that arrived of all units, change nothing? See
  /// optim::LossScaler.
  bool skipped(std::uint64_t version) const { return protocol_.skipped(version); }
  /// Waits until the servers have confirmed the last `push` of the unit.
  void wait_acknowledged(std::size_t unit);
  bool acknowledged(std::size_t unit) const { return protocol_.acknowledged(unit); }
  /// Waits for one message, at most until the moment, and takes it; returns whether one came. For callers that have a
  /// deadline of their own, in place of `wait`.
  bool wait_message(Moment until);
  /// Tells every server that this worker pushes nothing more.
  void leave();
  std::uint64_t heard(std::size_t unit) const { return protocol_.heard(unit); }
  /// Returns the mean staleness of this worker's gradients over the pieces that servers have reported since the last
  /// call. Staleness is the number of updates by other workers between the values from which a gradient was computed
  /// and its own update.
  double take_staleness();
  /// Asks every server to save its part of the checkpoint of a version. Waits until all servers and `others` workers
  /// have saved. REQUIRES: this is worker 0; nothing that leads to a later version was pushed.
  void save(std::uint64_t version, std::size_t others);
  /// Tells the servers that this worker has written its own part. REQUIRES: this is not worker 0.
  void written(std::uint64_t version);
  /// Takes arrived messages and sends frames that may leave, without waiting.
  void progress();
  /// Returns once all pushes and requests have left this process, so that servers can go on while the worker waits
  /// elsewhere.
  void drain();
  /// Time spent in here, waiting included.
  Nanoseconds busy() const { return busy_; }

 private:
  class Busy;  ///< counts a call's time
  void send(const auto& what);
  void take(const net::Message& message);
  void take_off(const char* what, std::size_t unit);
  std::string name_of(std::size_t unit, std::uint64_t step) const;
  void wait_until(const auto& done, const auto& what);

  net::Transport& transport_;
  const Clock& clock_;
  const Options options_;
  ClientProtocol protocol_;
  std::function<bool(const net::Message&)> receiver_;
  net::Outbox outbox_;
  std::uint64_t step_ = 0;  ///< that the worker is in
  ClientProtocol::Frames frames_;
  std::vector<Events::Flight> flights_;  ///< by unit; empty if nobody listens to details
  Nanoseconds busy_{0};
};

}  // namespace psring::worker
