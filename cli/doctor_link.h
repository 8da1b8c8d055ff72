#pragma once

#include <memory>
#include <string>

#include <psring/cli/doctor_judge.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/address.h>
#include <psring/common/net/key.h>

namespace psring::cli {

/// Two doctors measure what is between them over one data link of the ring's kind: bare TCP, which opens with the proof
/// of the job's key, not encrypted. The one that listens only answers; the grammar is in docs/wire.md.

/// The one that answers.
class LinkAnswerer {
 public:
  /// Listens; port 0: any. Throws data where it cannot.
  LinkAnswerer(const net::JobKey& key, const net::Endpoint& at);
  ~LinkAnswerer();
  LinkAnswerer(const LinkAnswerer&) = delete;
  LinkAnswerer& operator=(const LinkAnswerer&) = delete;

  const std::string& endpoint() const;  ///< HOST:PORT
  /// Answers one doctor, until it has what it wants; returns where it was. Who does not prove the key is hung up on,
  /// and waited on. Throws timeout where nobody has come by then, peer_lost where it leaves early or falls silent.
  std::string answer(Moment deadline);

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

/// The one that asks.
class LinkAsker {
 public:
  /// Connects. Throws peer_lost where nobody listens, timeout, unauthorised where the other end has another key.
  LinkAsker(const net::JobKey& key, const std::string& endpoint, Moment deadline);
  ~LinkAsker();
  LinkAsker(const LinkAsker&) = delete;
  LinkAsker& operator=(const LinkAsker&) = delete;

  /// Round trips, then each way, each for this long, and at most twice as long or a few answers. Once: it says goodbye.
  LinkFigures measure(Nanoseconds each);

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

/// Both at once in this process, over the loopback interface.
LinkFigures measure_loopback(Nanoseconds each);

}  // namespace psring::cli
