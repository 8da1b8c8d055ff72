#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <psring/ring/shm/progress.h>

namespace psring::ring {

/// A message to or from one rank, through the mailbox of that pair and direction.
class ShmMessage final : public ShmTask {
 public:
  /// `number`: among the messages of this pair and direction.
  ShmMessage(ShmProgress& progress, ShmEndpoint& at, std::uint64_t number, const Request& request);
  ~ShmMessage() override;

  bool advance() override { return step(); }
  bool finished() const override { return finished_; }
  std::vector<std::size_t> awaited() const override { return {at_.name(peer_)}; }
  Announced said() const override { return {call_, number_}; }
  /// Goes as far as possible without waiting; true once finished.
  bool step();

 private:
  bool step_send();
  void post(ShmMailbox& box);
  bool step_recv();
  std::size_t bytes() const { return call_.count * call_.type.bytes(); }
  bool is_eager() const { return bytes() <= kShmEagerBytes; }

  ShmEndpoint& at_;
  const std::uint64_t number_;
  const Call call_;
  const Vector data_;
  const std::size_t peer_;
  bool posted_ = false;
  bool finished_ = false;
  std::span<std::byte> copy_;  ///< in the arena, of a vector that lies elsewhere
};

}  // namespace psring::ring
