#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>

namespace psring::view {

/// The connections of the live view, all in one thread: idle and slow ones cost a descriptor and bounded memory, and
/// delay nobody. If there are too many, the oldest without a request is closed.
class Connections {
 public:
  struct Answer {
    std::string bytes;
    bool streams = false;  ///< the connection stays open, and gets events
  };
  /// Answers a request by its head, which ends with an empty line.
  using Respond = std::function<Answer(std::string_view head)>;
  using Event = std::shared_ptr<const std::string>;

  static constexpr std::size_t kMost = 128;
  static constexpr std::size_t kMostStreams = 16;
  static constexpr std::size_t kMostHeadBytes = 16384;

  /// `listener`: a listening, non-blocking socket. REQUIRES: the clock outlives the object.
  Connections(Fd listener, Respond respond, const Clock& clock);
  ~Connections();

  std::string endpoint() const;
  /// Moves bytes until `deadline`.
  void run(Moment deadline);
  /// Sends an event to each stream. A stream that has not taken the event before gets only the newest one next.
  void publish(Event event);

  std::size_t streams() const;
  /// Has every connection sent all that it has to?
  bool is_drained() const;

 private:
  struct Connection;

  void accept_all();
  void make_room();
  void read(Connection& connection);
  void answer(Connection& connection);
  void write(Connection& connection);
  bool is_over(const Connection& connection) const;

  const Fd listener_;
  const Respond respond_;
  const Clock& clock_;
  std::list<Connection> connections_;  ///< the oldest first
};

}  // namespace psring::view
