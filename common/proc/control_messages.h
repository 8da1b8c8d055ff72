#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/error.h>
#include <psring/common/net/frame.h>

namespace psring::net {

/// How a member is reached: the way and its address, such as {"tcp", "10.0.0.2:7001"}.
using Addresses = std::map<std::string, std::string>;

/// A process of the job.
struct Member {
  Peer peer;
  std::string host_id;  ///< equal for processes that can share memory
  std::string hostname;
  std::uint32_t pid = 0;
  Addresses addresses;
};

/// "worker 0 (host:4711)"
std::string to_string(const Member& member);

/// What members (M) and the coordinator (C) say to each other.
namespace control {

struct Hello {  ///< M: wants to join
  Role role = Role::worker;
  std::optional<std::uint32_t> rank;  ///< a wish
  std::string host_id;
  std::string hostname;
  std::uint32_t pid = 0;
  /// Who has joined already, and was cut off: where it was.
  std::optional<std::uint32_t> epoch = {};
  Peer duty = {};
  bool running = false;  ///< it has been told of the members of that epoch
  /// The processor and the kernels chosen for it: results have equal bits only where these are equal.
  std::string processor = {};
  /// A worker asks before each step whether it may begin; one that does not cannot be ended between two.
  bool asks = true;
};
struct Welcome {  ///< C: has joined
  std::uint32_t rank = 0;
  std::string job;  ///< JSON
  Nanoseconds heartbeat_interval{};
  Nanoseconds heartbeat_timeout{};
  std::uint32_t epoch = 0;  ///< of the membership
  Nanoseconds patience{};   ///< for a coordinator that was lost to come back; 0: it will not
};
struct Refused {  ///< C: has not joined, and will not
  ErrorKind kind = ErrorKind::usage;
  std::string text;
};
struct Ready {  ///< M (server, worker): can be reached
  Addresses addresses;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  ///< that it has come to
  bool has_state = false;  ///< from which the job can go on
};
struct Members {  ///< C: all servers and workers, once all of them are ready; ordered by role and rank
  std::vector<Member> members;
  std::uint32_t epoch = 0;
  Peer self = {};  ///< who the receiver is, from now on
};
struct Regroup {  ///< C: somebody was lost. Leave what cannot go on, and be ready for the next epoch
  std::uint32_t epoch = 0;
  std::string text;
};
struct Stuck {  ///< M (server, worker): a link broke, or a peer; nothing goes on in this epoch
  std::uint32_t epoch = 0;
  std::string text;
};
struct Resumed {  ///< M (worker): goes on, in a later epoch than the first
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  ///< that it does next
};
struct Heartbeat {         ///< M
  Nanoseconds sent{};      ///< on the member's clock
  std::uint64_t mark = 0;  ///< of a flush; 0: none
};
struct HeartbeatAck {  ///< C: everything up to this heartbeat has been handled
  Nanoseconds sent{};
  std::uint64_t mark = 0;
  Nanoseconds clock{};  ///< the coordinator's
};
struct StartRoles {  ///< C to an agent: these are yours
  std::vector<Peer> roles;
};
struct EndRoles {  ///< C to an agent: kill these
  std::vector<Peer> roles;
};
struct RoleExited {  ///< M (agent)
  Peer role;
  std::int32_t status = 0;  ///< exit status; without meaning where a signal ended it
  std::int32_t signal = 0;  ///< 0: none
  std::string last_line;    ///< of its standard error
  std::uint32_t pid = 0;
  bool gone = false;  ///< it was to be ended, and did not run
};
struct Lost {  ///< C: a member is gone
  Peer peer;
  std::string text;
};
/// How a job ended that a signal interrupted.
struct Interruption {
  std::int32_t signal = 0;  ///< 0: the job was not interrupted
  std::uint64_t first = 0;  ///< the steps that its workers came to, from the first of them
  std::uint64_t last = 0;   ///< to the last: the same, but under ssp and asp
};
/// "at step 968", "at steps 950 to 968"
std::string describe(const Interruption& interruption);
struct Abort {  ///< C: the job has failed
  ErrorKind kind = ErrorKind::bug;
  std::string text;
  std::int32_t signal = 0;                ///< that ended it at once; 0: none did
  Peer culprit = {Role::coordinator, 0};  ///< whose log says more, as its agent knows it; the coordinator: nobody's
};
struct Failed {  ///< M: a fatal error of its own
  ErrorKind kind = ErrorKind::bug;
  std::string text;
};
struct Report {  ///< M (server, worker): its figures
  std::string json;
};
struct Append {  ///< M: bytes to be appended to a file of the run folder
  std::string file;
  std::vector<std::byte> bytes;  ///< at most kMaxAppendBytes
  std::uint64_t number = 0;      ///< of this member's, from 1: a repeated one is not written again; 0: C's own
};
struct Notice {  ///< C: a line for people
  std::string text;
};
struct Progress {  ///< M: for whoever watches
  std::string text;
};
struct Done {               ///< M (worker): has trained to the end, or to the step that it was to stop before
  std::uint64_t step = 0;   ///< that it would do next
  std::int32_t signal = 0;  ///< why it stopped there; 0: that is the end
};
struct Finish {  ///< C: to servers: all workers are done; to workers and agents: the job has ended well
  Interruption interrupted;
};
struct Bye {};      ///< M: leaves; its last message
struct Interrupt {  ///< M: a process of the job got this signal: the job is to end after the step under way
  std::int32_t signal = 0;
  bool at_once = false;  ///< or now
};
struct Pause {  ///< C to a worker: begin no step but the one under way until you are told where to stop
  std::uint32_t epoch = 0;
  std::int32_t signal = 0;
};
struct Paused {  ///< M (worker): the answer
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  ///< that it does not begin; no step from there on has begun
  std::int32_t signal = 0;
};
struct StopBefore {  ///< C to a worker that has paused: go on, and end before this step
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
};

}  // namespace control

using ControlMessage =
    std::variant<control::Hello, control::Welcome, control::Refused, control::Ready, control::Members,
                 control::Heartbeat, control::HeartbeatAck, control::StartRoles, control::RoleExited, control::Lost,
                 control::Abort, control::Failed, control::Report, control::Append, control::Progress, control::Done,
                 control::Finish, control::Bye, control::Regroup, control::Stuck, control::Resumed, control::EndRoles,
                 control::Notice, control::Interrupt, control::Pause, control::Paused, control::StopBefore>;

/// The name of what it says: "hello".
std::string_view name_of(const ControlMessage& message);

inline constexpr std::size_t kMaxControlBytes = std::size_t{4} << 20;  ///< of a message
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;     ///< of a string
inline constexpr std::size_t kMaxListItems = 4096;                     ///< of a list
inline constexpr std::size_t kMaxAppendBytes = std::size_t{1} << 20;

/// message := version:u8 type:u8 body, the body in cereal's portable binary.
/// Throws bug where the message exceeds the bounds above.
std::vector<std::byte> encode_control(const ControlMessage& message);

/// Throws protocol, saying what is wrong, for anything that encode_control cannot have written: another
/// version, an unknown type or enumerator, more than the bounds allow, missing or surplus bytes. Nothing is
/// allocated for a size that is only claimed beyond the bounds.
ControlMessage decode_control(std::span<const std::byte> bytes);

/// Is it the name of a file of the run folder that members may append to: at most four parts of letters,
/// digits, '.', '_' and '-', none of which starts with '.', joined by '/'?
bool is_safe_file_name(std::string_view name);

}  // namespace psring::net
