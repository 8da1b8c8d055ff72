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
#include <psring/common/base/text/error.h>
#include <psring/common/net/frame.h>
#include <psring/common/proc/build_id.h>

namespace psring::net {

/// How a member is reached: addresses by transport, such as {"tcp", "10.0.0.2:7001"}.
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

/// The wire version of this build: of the control messages, and of the data frames: "8.6".
std::string wire_version();

/// The messages between members (M) and the coordinator (C).
namespace control {

struct Hello {  ///< M: asks to join
  Role role = Role::worker;
  std::optional<std::uint32_t> rank;  ///< the rank to ask for; none: any
  std::string host_id;
  std::string hostname;
  std::uint32_t pid = 0;
  /// The epoch of a member that had joined and lost its connection; none: a new member.
  std::optional<std::uint32_t> epoch = {};
  Peer duty = {};        ///< the member's duty in that epoch
  bool running = false;  ///< the member has the list of that epoch's members
  /// The processor and the kernels chosen for it: results have equal bits only if these are equal.
  std::string processor = {};
  /// The worker asks before each step whether it may begin. Otherwise a job cannot end between two steps.
  bool asks = true;
  BuildId build = {};  ///< the first on the wire, where a coordinator of another wire version reads it
  std::string wire = wire_version();
  std::uint64_t pid_namespace = 0;  ///< the namespace of `pid`; 0: unknown
};
struct Welcome {  ///< C: the member has joined
  std::uint32_t rank = 0;
  std::string job;  ///< JSON
  Nanoseconds heartbeat_interval{};
  Nanoseconds heartbeat_timeout{};
  std::uint32_t epoch = 0;  ///< the membership epoch
  Nanoseconds patience{};   ///< how long a lost coordinator is waited for; 0: it does not come back
  bool more = false;        ///< another job follows at the same endpoint: agents stay for it
};
struct Refused {  ///< C: the member may not join. The same on the wire in all versions from 7 on
  ErrorKind kind = ErrorKind::usage;
  std::string text;
};
struct Wait {  ///< C: the member may not join yet, for this reason
  std::string text;
};
struct Ready {  ///< M (server, worker): the member can be reached
  Addresses addresses;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  ///< the step that the member has reached
  bool has_state = false;  ///< the member has state from which the job can continue
  Addresses files;         ///< what a worker reads at its host: option → what the file holds, in a few words
};
struct Members {  ///< C: all servers and workers, once all of them are ready; ordered by role and rank
  std::vector<Member> members;
  std::uint32_t epoch = 0;
  Peer self = {};  ///< the receiver's duty from now on
};
struct Regroup {  ///< C: a member was lost. Leave this epoch, and be ready for the next
  std::uint32_t epoch = 0;
  std::string text;
};
struct Stuck {  ///< M (server, worker): a link or a peer is lost, and the member cannot continue in this epoch
  std::uint32_t epoch = 0;
  std::string text;
};
struct Resumed {  ///< M (worker): the worker continues, in a later epoch than the first
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  ///< the next step
};
struct Heartbeat {         ///< M
  Nanoseconds sent{};      ///< the time on the member's clock
  std::uint64_t mark = 0;  ///< the number of the heartbeat, from 1
  Nanoseconds idle{};      ///< for how long the member has only waited, see IdleWatch
};
struct HeartbeatAck {  ///< C: all messages before this heartbeat were handled
  Nanoseconds sent{};
  std::uint64_t mark = 0;
  Nanoseconds clock{};  ///< the time on the coordinator's clock
};
struct StartRoles {  ///< C to an agent: start these roles
  std::vector<Peer> roles;
};
struct EndRoles {  ///< C to an agent: kill these roles
  std::vector<Peer> roles;
};
struct RoleExited {  ///< M (agent): a role's process has ended
  Peer role;
  std::int32_t status = 0;  ///< exit status; without meaning if a signal ended the process
  std::int32_t signal = 0;  ///< the signal that ended the process; 0: none
  std::string last_line;    ///< the last line of the standard error
  std::uint32_t pid = 0;
  bool gone = false;  ///< the process was to be ended, but did not run any more
};
struct Lost {  ///< C: a member is lost
  Peer peer;
  std::string text;
};
/// How a signal ended a job.
struct Interruption {
  std::int32_t signal = 0;  ///< 0: no signal ended the job
  std::uint64_t first = 0;  ///< the lowest step that a worker reached
  std::uint64_t last = 0;   ///< the highest step that a worker reached; differs from `first` under ssp and asp only
};
/// "at step 968", "at steps 950 to 968"
std::string describe(const Interruption& interruption);
struct Abort {  ///< C: the job has failed
  ErrorKind kind = ErrorKind::bug;
  std::string text;
  std::int32_t signal = 0;                ///< the signal that ended the job at once; 0: none
  Peer culprit = {Role::coordinator, 0};  ///< the place whose log says more; the coordinator: no log does
};
struct Failed {  ///< M: a fatal error of the member
  ErrorKind kind = ErrorKind::bug;
  std::string text;
  bool decided =
      false;  ///< the member's program ends the job; otherwise the loss of a peer may follow from another one
};
struct Report {  ///< M (server, worker): the member's figures
  std::string json;
};
struct Append {  ///< M: bytes to be appended to a file of the run folder
  std::string file;
  std::vector<std::byte> bytes;  ///< at most kMaxAppendBytes
  std::uint64_t number = 0;      ///< counts the member's appends from 1, so that each is written once; 0: C's own
};
struct Notice {  ///< C: a line for people
  std::string text;
};
struct Progress {  ///< M: the progress, for a person who watches
  std::string text;
};
struct Done {               ///< M (worker): the worker has trained to the end, or was stopped
  std::uint64_t step = 0;   ///< the step that the worker would do next
  std::int32_t signal = 0;  ///< the signal that stopped the worker; 0: it has trained to the end
};
struct Finish {  ///< C: to servers: all workers are done; to workers and agents: the job has ended well
  Interruption interrupted;
};
struct Bye {};      ///< M: the member leaves; its last message
struct Interrupt {  ///< M: a process of the job got this signal: the job has to end after the current step
  std::int32_t signal = 0;
  bool at_once = false;  ///< the job has to end now instead
};
struct Pause {  ///< C to a worker: begin no further step until the stopping point arrives
  std::uint32_t epoch = 0;
  std::int32_t signal = 0;
};
struct Paused {  ///< M (worker): answers Pause
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;  ///< the first step that the worker has not begun
  std::int32_t signal = 0;
  std::uint64_t piece = ~std::uint64_t{0};  ///< of the evaluation before the step, see StopPoint
};
struct StopBefore {  ///< C to a paused worker: continue, and end before this step, or piece of the evaluation before it
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t piece = ~std::uint64_t{0};
};

struct Status {  ///< M (server, worker): its present activity; the next status replaces this one
  std::string json;
};

}  // namespace control

using ControlMessage =
    std::variant<control::Hello, control::Welcome, control::Refused, control::Ready, control::Members,
                 control::Heartbeat, control::HeartbeatAck, control::StartRoles, control::RoleExited, control::Lost,
                 control::Abort, control::Failed, control::Report, control::Append, control::Progress, control::Done,
                 control::Finish, control::Bye, control::Regroup, control::Stuck, control::Resumed, control::EndRoles,
                 control::Notice, control::Interrupt, control::Pause, control::Paused, control::StopBefore,
                 control::Status, control::Wait>;

/// The name of the message's type: "hello".
std::string_view name_of(const ControlMessage& message);

inline constexpr std::size_t kMaxControlBytes = std::size_t{4} << 20;  ///< the most bytes of a message
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;     ///< the most bytes of a string
inline constexpr std::size_t kMaxListItems = 4096;                     ///< the most items of a list
inline constexpr std::size_t kMaxAppendBytes = std::size_t{1} << 20;

/// message := version:u8 type:u8 body, the body in cereal's portable binary. A Hello begins with its build, and a
/// Refused does not change, so that builds of different wire versions can tell each other so.
/// Throws bug if the message exceeds the bounds above.
std::vector<std::byte> encode_control(const ControlMessage& message);

/// Throws data, naming both builds, for a Hello of another wire version. Throws protocol, naming the mistake, for other
/// bytes that encode_control cannot have written: another version, an unknown type or enumerator, a size beyond the
/// bounds, missing or surplus bytes. Checks each size before it allocates.
ControlMessage decode_control(std::span<const std::byte> bytes);

/// Returns true if members may append to a file of this name in the run folder: at most four parts of letters, digits,
/// '.', '_' and '-', joined by '/', none of which starts with '.'.
bool is_safe_file_name(std::string_view name);

}  // namespace psring::net
