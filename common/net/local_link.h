#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>

#include <psring/common/device/arena.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/link_shaping.h>

namespace psring::net {

/// What two roles of one process share, a client and a server: the way between them, and the process's one network
/// card where --link shapes it.
///
/// Frames pass as they are. A payload in the client's arena is read where it lies, an answer stored where it is wanted
/// (FrameHeader::dest); of any other up to kCopiedBytes are copied, more are read where the sender has them. Nothing
/// leaves the process, so no bytes are counted. From two threads, one for each end.
class LocalLink {
 public:
  /// `card`: null where links are not shaped.
  LocalLink(Peer client, Peer server, std::shared_ptr<LinkShaper> card = nullptr);
  ~LocalLink();

  Peer client() const { return peers_[kClient]; }
  Peer server() const { return peers_[kServer]; }

  /// The ends, as channels; each is made once. What was sent before the other end was there waits for it. An end that
  /// is gone is a lost peer to the other. REQUIRES: the link outlives the ends, the arena the server's messages.
  std::unique_ptr<Channel> client_end(Arena& arena);
  std::unique_ptr<Channel> server_end();

  const std::shared_ptr<LinkShaper>& card() const { return card_; }

 private:
  enum Side : std::size_t { kClient = 0, kServer = 1 };
  struct Inbox;
  class End;

  const std::array<Peer, 2> peers_;
  const std::shared_ptr<LinkShaper> card_;  ///< shared by all links of the process
  std::mutex mutex_;
  Arena* arena_ = nullptr;                         ///< the client's; guarded by mutex_
  std::array<std::unique_ptr<Inbox>, 2> inboxes_;  ///< what they hold is guarded by mutex_
};

}  // namespace psring::net
