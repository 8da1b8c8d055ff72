#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include <psring/common/base/system/mutex.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/link_shaping.h>

namespace psring::net {

/// A link between two roles of one process, a client and a server. Also holds the process's network card if --link
/// shapes it.
///
/// Frames are passed in memory. A payload in the client's arena is read in place, and an answer is stored at its
/// destination (FrameHeader::dest). Other payloads are copied up to kCopiedBytes; larger payloads are read from the
/// sender's memory. No frame leaves the process, so no bytes are counted. Each end may be used by its own thread.
class LocalLink {
 public:
  /// `card`: null if links are not shaped.
  LocalLink(Peer client, Peer server, std::shared_ptr<LinkShaper> card = nullptr);
  ~LocalLink();

  Peer client() const { return peers_[kClient]; }
  Peer server() const { return peers_[kServer]; }

  /// Makes the ends as channels, once each. Messages sent before the other end exists wait for it. If an end is
  /// destroyed, the other end sees a lost peer. REQUIRES: the link outlives the ends; the arena outlives the server's
  /// messages.
  std::unique_ptr<Channel> client_end(Arena& arena);
  std::unique_ptr<Channel> server_end();

  const std::shared_ptr<LinkShaper>& card() const { return card_; }

 private:
  enum Side : std::size_t { kClient = 0, kServer = 1 };
  struct Inbox;
  class End;

  const std::array<Peer, 2> peers_;
  const std::shared_ptr<LinkShaper> card_;  ///< shared by all links of the process
  Mutex mutex_;
  Arena* arena_ PSRING_GUARDED_BY(mutex_) = nullptr;  ///< the client's arena
  std::array<std::unique_ptr<Inbox>, 2> inboxes_;     ///< their contents are guarded by mutex_
};

}  // namespace psring::net
