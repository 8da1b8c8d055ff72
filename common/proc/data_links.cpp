#include <map>
#include <utility>

#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/shm/channel.h>
#include <psring/common/proc/data_links.h>

namespace psring::net {

Way parse_way(const std::string& text) {
  if (text == "auto") return Way::automatic;
  if (text == "shm") return Way::shm;
  if (text == "tcp") return Way::tcp;
  fail(ErrorKind::usage, "--transport: expected auto, shm or tcp, got '{}'", text);
}

bool only_tcp(const DataLinks::Options& options) { return options.link || options.frame_faults; }

DataLinks::Options with_card(DataLinks::Options options) {
  if (options.link && !options.card) options.card = std::make_shared<LinkShaper>(*options.link);
  return options;
}

DataLinks::DataLinks(const JobKey& key, Options options, ByteLedger& ledger)
    : key_(key), options_(with_card(std::move(options))), ledger_(ledger) {
  if (options_.encrypt)
    authenticator_.emplace(context_.handle(), std::vector<std::string>{key_.client_keys().public_key});
  zmq_ = make_zmq_channel(context_, {.key = key_,
                                     .self = options_.self,
                                     .encrypt = options_.encrypt,
                                     .authenticator = authenticator_ ? &*authenticator_ : nullptr,
                                     .silence = options_.silence,
                                     .refusals = options_.refusals});
}

DataLinks::~DataLinks() = default;

/// A worker holds its server's gradients back until the others have left; see HeldFrames.
void DataLinks::share_process(std::shared_ptr<LocalLink> local) {
  local_ = std::move(local);
  if (options_.self.peer == local_->client()) zmq_->follow_departures();
}

Addresses DataLinks::listen() {
  if (local_ && options_.self.peer == local_->server()) local_end_ = local_->server_end();
  if (only_tcp(options_)) return {{"tcp", zmq_->listen("tcp://" + to_string(Endpoint{options_.bind, 0}))}};
  // The pid makes the name unique: after a restart, the next process of this peer may listen before this one is gone.
  const std::string name = fmt::format("{}-{}", shm_name(key_.job_id(), options_.self.peer), ::getpid());
  shm_.push_back(listen_shm({.key = key_, .self = options_.self, .refusals = options_.refusals}, name));
  return {{"tcp", zmq_->listen("tcp://" + to_string(Endpoint{options_.bind, 0}))}, {"shm", name}};
}

void DataLinks::become(Identity self) {
  options_.self = self;
  zmq_->become(self);
  for (const auto& channel : shm_) channel->become(self);
}

void DataLinks::connect(const std::vector<Member>& members, Arena& arena, const Deadline& deadline) {
  std::map<Peer, std::string> near;
  std::map<Peer, std::string> far;
  if (options_.link && options_.way == Way::shm)
    fail(ErrorKind::usage, "--link shapes TCP: --transport shm has no link to shape");
  if (options_.frame_faults && options_.way == Way::shm)
    fail(ErrorKind::usage, "--fault: faults of frames need TCP, which --transport shm excludes");
  for (const Member& member : members) {
    if (local_ && options_.self.peer == local_->client() && member.peer == local_->server()) {
      local_end_ = local_->client_end(arena);
      continue;
    }
    const bool same_host = member.host_id == options_.host_id;
    if (options_.way == Way::shm && !same_host)
      fail(ErrorKind::usage, "--transport shm: {} is on another host than {}", to_string(member),
           to_string(options_.self.peer));
    if (options_.way != Way::tcp && !only_tcp(options_) && same_host) {
      near[member.peer] = member.addresses.at("shm");
    } else {
      far[member.peer] = member.addresses.at("tcp");
    }
  }
  if (!far.empty()) zmq_->connect(far, deadline);
  if (!near.empty()) shm_.push_back(connect_shm({.key = key_, .self = options_.self}, arena, near, deadline));
}

Transport& DataLinks::transport() {
  if (!transport_) {
    std::vector<std::unique_ptr<Channel>> channels = std::move(shm_);
    if (local_end_) channels.push_back(std::move(local_end_));
    if (options_.link) {
      channels.push_back(make_shaped_channel(std::move(zmq_), options_.card));
    } else {
      channels.push_back(std::move(zmq_));
    }
    const auto over = [&](ByteLedger& ledger) {
      return make_poll_transport(options_.self.peer, key_.job_id(), std::move(channels), ledger);
    };
    transport_ = options_.frame_faults ? make_disturbed_transport(options_.self, *options_.frame_faults, ledger_, over)
                                       : over(ledger_);
  }
  return *transport_;
}

}  // namespace psring::net
