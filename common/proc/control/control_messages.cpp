#include <algorithm>
#include <array>
#include <concepts>
#include <istream>
#include <ostream>
#include <streambuf>
#include <type_traits>
#include <utility>

#include <cereal/archives/portable_binary.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_messages.h>

namespace psring::net {
namespace {

constexpr std::uint8_t kVersion = 9;
constexpr std::uint8_t kFirstWithBuild = 7;  ///< the first version in which a Hello begins with its build

/// Reads the caller's bytes in place.
class InputBuffer final : public std::streambuf {
 public:
  explicit InputBuffer(std::span<const std::byte> bytes) {
    char* begin = const_cast<char*>(
        reinterpret_cast<const char*>(bytes.data()));  // the buffer is never written, but setg has no const
    setg(begin, begin, begin + bytes.size());
  }
  std::size_t left() const { return static_cast<std::size_t>(egptr() - gptr()); }
};

class OutputBuffer final : public std::streambuf {
 public:
  std::vector<std::byte> bytes;

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
    return size;
  }
  int_type overflow(int_type c) override {
    bytes.push_back(static_cast<std::byte>(traits_type::to_char_type(c)));
    return c;
  }
};

template <class T>
concept Number = std::integral<T> && !std::same_as<T, bool>;

/// ControlWriter and ControlReader are two directions of the same list of fields (`fields` below). They do not use
/// cereal's own string and container types, which resize to any size that the bytes claim.
class ControlWriter {
 public:
  explicit ControlWriter(std::ostream& out) : archive_(out) {}

  template <class... Ts>
  void operator()(const Ts&... values) {
    (write(values), ...);
  }

 private:
  void write(Number auto value) { archive_(value); }
  void write(Role role) { archive_(static_cast<std::uint8_t>(role)); }
  void write(ErrorKind kind) { archive_(static_cast<std::uint8_t>(kind)); }
  void write(Nanoseconds time) { archive_(std::int64_t{time.count()}); }
  void write(Peer peer) { (*this)(peer.role, peer.rank); }
  void write(const std::string& text) { write_block(text.data(), text.size(), kMaxTextBytes); }
  void write(const std::vector<std::byte>& bytes) { write_block(bytes.data(), bytes.size(), kMaxAppendBytes); }
  void write(const std::optional<std::uint32_t>& value) { (*this)(std::uint8_t{value.has_value()}, value.value_or(0)); }
  void write(const Addresses& addresses) {
    write_size(addresses.size(), kMaxListItems);
    for (const auto& [way, address] : addresses) (*this)(way, address);
  }
  template <class T>
  void write(const std::vector<T>& list) {
    write_size(list.size(), kMaxListItems);
    for (const T& item : list) write(item);
  }
  void write(bool value) { archive_(std::uint8_t{value}); }
  void write(const Member& m) { (*this)(m.peer, m.host_id, m.hostname, m.pid, m.addresses); }

  void write_size(std::size_t size, std::size_t most) {
    check(size <= most, "control message with a list or text of {}: at most {} are allowed", size, most);
    archive_(static_cast<std::uint32_t>(size));
  }
  void write_block(const void* data, std::size_t size, std::size_t most) {
    write_size(size, most);
    archive_(cereal::binary_data(data, size));
  }

  cereal::PortableBinaryOutputArchive archive_;
};

class ControlReader {
 public:
  explicit ControlReader(std::istream& in) : archive_(in) {}

  template <class... Ts>
  void operator()(Ts&... values) {
    (read(values), ...);
  }

 private:
  void read(Number auto& value) { archive_(value); }
  void read(Role& role) { role = static_cast<Role>(enumerator(static_cast<std::uint8_t>(Role::agent), "role")); }
  void read(ErrorKind& kind) {
    kind = static_cast<ErrorKind>(enumerator(static_cast<std::uint8_t>(ErrorKind::check_failed), "kind of error"));
  }
  void read(Nanoseconds& time) {
    std::int64_t count = 0;
    archive_(count);
    time = Nanoseconds{count};
  }
  void read(Peer& peer) { (*this)(peer.role, peer.rank); }
  void read(std::string& text) {
    text.resize(read_size(kMaxTextBytes));
    archive_(cereal::binary_data(text.data(), text.size()));
  }
  void read(std::vector<std::byte>& bytes) {
    bytes.resize(read_size(kMaxAppendBytes));
    archive_(cereal::binary_data(bytes.data(), bytes.size()));
  }
  void read(std::optional<std::uint32_t>& value) {
    const bool there = enumerator(1, "flag") == 1;
    std::uint32_t number = 0;
    read(number);
    if (there) value = number;
  }
  void read(Addresses& addresses) {
    for (std::size_t left = read_size(kMaxListItems); left > 0; --left) {
      std::string way;
      std::string address;
      (*this)(way, address);
      if (!addresses.emplace(std::move(way), std::move(address)).second)
        fail(ErrorKind::protocol, "control message with two values of one name");
    }
  }
  template <class T>
  void read(std::vector<T>& list) {
    for (std::size_t left = read_size(kMaxListItems); left > 0; --left) read(list.emplace_back());
  }
  void read(bool& value) { value = enumerator(1, "flag") == 1; }
  void read(Member& m) { (*this)(m.peer, m.host_id, m.hostname, m.pid, m.addresses); }

  std::uint8_t enumerator(std::uint8_t last, std::string_view name) {
    std::uint8_t value = 0;
    archive_(value);
    if (value > last) fail(ErrorKind::protocol, "control message with an unknown {} {}", name, value);
    return value;
  }
  std::size_t read_size(std::size_t most) {
    std::uint32_t size = 0;
    archive_(size);
    if (size > most)
      fail(ErrorKind::protocol, "control message that claims a size of {}: at most {} are allowed", size, most);
    return size;
  }

  cereal::PortableBinaryInputArchive archive_;
};

template <class T, class Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

void fields(auto& io, Is<BuildId> auto& m) { io(m.program, m.sources); }
void fields(auto& io, Is<control::Hello> auto& m) {
  fields(io, m.build);
  io(m.role, m.rank, m.host_id, m.hostname, m.pid, m.epoch, m.duty, m.running, m.processor, m.asks, m.wire,
     m.pid_namespace);
}
void fields(auto& io, Is<control::Welcome> auto& m) {
  io(m.rank, m.job, m.heartbeat_interval, m.heartbeat_timeout, m.epoch, m.patience, m.more);
}
void fields(auto& io, Is<control::Refused> auto& m) { io(m.kind, m.text); }
void fields(auto& io, Is<control::Ready> auto& m) { io(m.addresses, m.epoch, m.step, m.has_state, m.files); }
void fields(auto& io, Is<control::Members> auto& m) { io(m.members, m.epoch, m.self); }
void fields(auto& io, Is<control::Heartbeat> auto& m) { io(m.sent, m.mark, m.idle); }
void fields(auto& io, Is<control::HeartbeatAck> auto& m) { io(m.sent, m.mark, m.clock); }
void fields(auto& io, Is<control::StartRoles> auto& m) { io(m.roles); }
void fields(auto& io, Is<control::RoleExited> auto& m) { io(m.role, m.status, m.signal, m.last_line, m.pid, m.gone); }
void fields(auto& io, Is<control::Lost> auto& m) { io(m.peer, m.text); }
void fields(auto& io, Is<control::Abort> auto& m) { io(m.kind, m.text, m.signal, m.culprit); }
void fields(auto& io, Is<control::Failed> auto& m) { io(m.kind, m.text, m.decided); }
void fields(auto& io, Is<control::Report> auto& m) { io(m.json); }
void fields(auto& io, Is<control::Append> auto& m) { io(m.file, m.bytes, m.number); }
void fields(auto& io, Is<control::Progress> auto& m) { io(m.text); }
void fields(auto& io, Is<control::Done> auto& m) { io(m.step, m.signal); }
void fields(auto& io, Is<control::Finish> auto& m) {
  io(m.interrupted.signal, m.interrupted.first, m.interrupted.last);
}
void fields(auto&, Is<control::Bye> auto&) {}
void fields(auto& io, Is<control::Regroup> auto& m) { io(m.epoch, m.text); }
void fields(auto& io, Is<control::Stuck> auto& m) { io(m.epoch, m.text); }
void fields(auto& io, Is<control::Resumed> auto& m) { io(m.epoch, m.step); }
void fields(auto& io, Is<control::EndRoles> auto& m) { io(m.roles); }
void fields(auto& io, Is<control::Notice> auto& m) { io(m.text); }
void fields(auto& io, Is<control::Interrupt> auto& m) { io(m.signal, m.at_once); }
void fields(auto& io, Is<control::Pause> auto& m) { io(m.epoch, m.signal); }
void fields(auto& io, Is<control::Paused> auto& m) { io(m.epoch, m.step, m.signal, m.piece); }
void fields(auto& io, Is<control::StopBefore> auto& m) { io(m.epoch, m.step, m.piece); }
void fields(auto& io, Is<control::Status> auto& m) { io(m.json); }
void fields(auto& io, Is<control::Wait> auto& m) { io(m.text); }

/// An empty message of the type with this number.
template <std::size_t Index = 0>
ControlMessage make_empty(std::size_t type) {
  if constexpr (Index == std::variant_size_v<ControlMessage>) {
    fail(ErrorKind::protocol, "control message of an unknown type {}", type);
  } else {
    return type == Index ? ControlMessage(std::in_place_index<Index>) : make_empty<Index + 1>(type);
  }
}

/// The body of a message of another version, as far as its form does not change between versions.
ControlMessage decode_other_version(int version, std::size_t type, std::span<const std::byte> body) {
  InputBuffer buffer(body);
  std::istream in(&buffer);
  std::string program = "another psring";
  try {
    ControlReader reader(in);
    if (version >= kFirstWithBuild && type == ControlMessage(control::Refused()).index()) {
      control::Refused refused;
      fields(reader, refused);
      return refused;
    }
    BuildId build;
    if (version >= kFirstWithBuild && type == ControlMessage(control::Hello()).index()) fields(reader, build);
    if (!build.program.empty()) program = build.program;
  } catch (const std::exception&) {  // the version is reported all the same
  }
  fail(ErrorKind::data,
       "the sender has wire version {} ({}), the receiver {} ({}): start all processes of a job from one build",
       version, program, kVersion, build_id().program);
}

}  // namespace

std::string wire_version() { return fmt::format("{}.{}", kVersion, FrameHeader::kWireVersion); }

std::string to_string(const Member& member) {
  return fmt::format("{} ({}:{})", to_string(member.peer), member.hostname, member.pid);
}

std::string control::describe(const Interruption& interruption) {
  if (interruption.first == interruption.last) return fmt::format("at step {}", interruption.last);
  return fmt::format("at steps {} to {}", interruption.first, interruption.last);
}

std::string_view name_of(const ControlMessage& message) {
  static constexpr std::array<std::string_view, std::variant_size_v<ControlMessage>> kNames = {
      "hello",       "welcome", "refused",     "ready",  "members", "heartbeat", "heartbeat_ack", "start_roles",
      "role_exited", "lost",    "abort",       "failed", "report",  "append",    "progress",      "done",
      "finish",      "bye",     "regroup",     "stuck",  "resumed", "end_roles", "notice",        "interrupt",
      "pause",       "paused",  "stop_before", "status", "wait"};
  return kNames[message.index()];
}

std::vector<std::byte> encode_control(const ControlMessage& message) {
  OutputBuffer buffer;
  buffer.bytes = {std::byte{kVersion}, static_cast<std::byte>(message.index())};
  std::ostream out(&buffer);
  ControlWriter writer(out);
  std::visit([&](const auto& m) { fields(writer, m); }, message);
  check(buffer.bytes.size() <= kMaxControlBytes, "control message '{}' of {} bytes, at most {} are allowed",
        name_of(message), buffer.bytes.size(), kMaxControlBytes);
  return std::move(buffer.bytes);
}

ControlMessage decode_control(std::span<const std::byte> bytes) {
  if (bytes.size() < 2 || bytes.size() > kMaxControlBytes)
    fail(ErrorKind::protocol, "control message of {} bytes, expected 2 to {}", bytes.size(), kMaxControlBytes);
  if (bytes[0] != std::byte{kVersion})
    return decode_other_version(std::to_integer<int>(bytes[0]), std::to_integer<std::size_t>(bytes[1]),
                                bytes.subspan(2));
  ControlMessage message = make_empty(std::to_integer<std::size_t>(bytes[1]));
  InputBuffer buffer(bytes.subspan(2));
  std::istream in(&buffer);
  try {
    ControlReader reader(in);
    std::visit([&](auto& m) { fields(reader, m); }, message);
  } catch (const cereal::Exception&) {
    fail(ErrorKind::protocol, "control message '{}' is cut short", name_of(message));
  }
  if (buffer.left() != 0)
    fail(ErrorKind::protocol, "control message '{}' with {} surplus bytes", name_of(message), buffer.left());
  return message;
}

bool is_safe_file_name(std::string_view name) {
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (name.size() > 200) return false;
  for (int parts = 1; parts <= 4; ++parts) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part.empty() || part.front() == '.' || !std::all_of(part.begin(), part.end(), safe)) return false;
    if (part.size() == name.size()) return true;
    name.remove_prefix(part.size() + 1);
  }
  return false;
}

}  // namespace psring::net
