#pragma once

#include <memory>
#include <string>

#include <psring/cli/doctor/doctor_judge.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/address.h>
#include <psring/common/net/key.h>

namespace psring::cli {

/// Two doctors measure the network between them over one data link of the ring's kind: plain TCP, which opens with the
/// proof of the job's key, and is not encrypted. The listening doctor only answers. The grammar is in docs/wire.md.

/// One end of the link.
struct LinkEnd;

/// The listening doctor.
class LinkAnswerer {
 public:
  /// Listens; port 0 means any port. Throws data if this fails.
  LinkAnswerer(const net::JobKey& key, const net::Endpoint& at);
  ~LinkAnswerer();
  LinkAnswerer(const LinkAnswerer&) = delete;
  LinkAnswerer& operator=(const LinkAnswerer&) = delete;

  const std::string& endpoint() const { return endpoint_; }  ///< HOST:PORT
  /// Answers one doctor until that one is finished; returns its address. Hangs up on clients that do not prove the key,
  /// and keeps waiting. Throws timeout if no doctor connects before the deadline, peer_lost if the doctor leaves early
  /// or falls silent.
  std::string answer(Moment deadline);

 private:
  std::unique_ptr<LinkEnd> end_;
  const std::string endpoint_;
};

/// The measuring doctor.
class LinkAsker {
 public:
  /// Connects. Throws peer_lost if no process listens, timeout, unauthorised if the other end has another key.
  LinkAsker(const net::JobKey& key, const std::string& endpoint, Moment deadline);
  ~LinkAsker();
  LinkAsker(const LinkAsker&) = delete;
  LinkAsker& operator=(const LinkAsker&) = delete;

  /// Measures round trips, messages by size, then each direction. Each measurement takes the time `each`, or up to
  /// twice as long on a slow link. Call it once: it ends the session.
  LinkFigures measure(Nanoseconds each);

 private:
  std::unique_ptr<LinkEnd> end_;
};

/// Runs both ends in this process, over the loopback interface.
LinkFigures measure_loopback(Nanoseconds each);

}  // namespace psring::cli
