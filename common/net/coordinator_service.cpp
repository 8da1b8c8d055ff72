#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
#include <zmq.h>

#include <psring/common/base/error.h>
#include <psring/common/base/fd.h>
#include <psring/common/base/poll.h>
#include <psring/common/net/address.h>
#include <psring/common/net/coordinator_service.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/zap.h>
#include <psring/common/net/zmq_gate.h>
#include <psring/common/net/zmq_socket.h>

namespace psring::net {
namespace {

constexpr std::string_view kScheme = "tcp://";

/// The files that members write to. Every write reaches the kernel at once, so that it survives this process.
class RunFolder {
 public:
  /// `goes_on`: a coordinator before this one has written to it.
  RunFolder(std::filesystem::path folder, bool goes_on) : folder_(std::move(folder)) {
    make_folder(folder_);
    if (!goes_on) return;
    std::ifstream book(folder_ / kBook);
    struct Entry {
      std::string process;
      std::uint64_t number = 0;
      std::string name;
      std::uintmax_t begin = 0;
      std::uintmax_t size = 0;
    } newest;
    std::uint64_t before = 0;
    std::uintmax_t whole = 0;  // bytes of lines that were completed
    for (std::string line; std::getline(book, line) && !book.eof(); whole += line.size() + 1) {
      std::istringstream(line) >> newest.process >> newest.number >> newest.name >> newest.begin >> newest.size;
      before = std::exchange(last_[newest.process], newest.number);
    }
    // The one before may have ended in the middle of its last append: then that is undone, and comes again.
    if (written(kBook) > whole) std::filesystem::resize_file(folder_ / kBook, whole);
    if (newest.process.empty() || written(newest.name) >= newest.begin + newest.size) return;
    if (written(newest.name) > newest.begin) std::filesystem::resize_file(folder_ / newest.name, newest.begin);
    last_[newest.process] = before;
  }

  /// Of a process's appends each is written once, however often it comes.
  void append(const std::string& process, std::uint64_t number, const std::string& name,
              std::span<const std::byte> bytes) {
    std::uint64_t& last = last_[process];
    if (number != 0 && number <= last) return;
    if (!process.empty()) {
      const std::string line = fmt::format("{} {} {} {} {}\n", process, number, name, written(name), bytes.size());
      append(kBook, std::as_bytes(std::span(line)));
    }
    append(name, bytes);
    last = number;
  }
  void append(const std::string& name, std::span<const std::byte> bytes) {
    auto found = files_.find(name);
    if (found == files_.end()) found = files_.emplace(name, open(name, O_APPEND)).first;
    write(name, found->second, bytes);
    if (files_.size() > kOpenFiles) files_.clear();
  }
  void replace(const std::string& name, std::string_view text) {
    write(name, open(name, O_TRUNC), std::as_bytes(std::span(text.data(), text.size())));
  }

 private:
  static constexpr std::size_t kOpenFiles = 256;
  /// A line of each append, before it is made: the process, its number, the file, its size and how much is added.
  static constexpr const char* kBook = "reports/appends";

  static void make_folder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail(ErrorKind::data, "{}: cannot make the folder: {}", folder.string(), error.message());
  }
  std::uintmax_t written(const std::string& name) const {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(folder_ / name, error);
    return error ? 0 : size;
  }
  Fd open(const std::string& name, int how) const {
    const std::filesystem::path path = folder_ / name;
    make_folder(path.parent_path());
    Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, 0644));
    if (!file) fail(ErrorKind::data, "{}: {}", path.string(), std::strerror(errno));
    return file;
  }
  void write(const std::string& name, const Fd& file, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR)
        fail(ErrorKind::data, "{}: cannot write: {}", (folder_ / name).string(), std::strerror(errno));
      if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  std::filesystem::path folder_;
  std::map<std::string, Fd> files_;
  std::map<std::string, std::uint64_t> last_;
};

/// What a ROUTER received. Messages are read into one buffer of the largest size and decoded in place.
struct Received {
  std::string from;
  int connection = -1;   ///< as the gate knows it
  std::size_t size = 0;  ///< of the message in the buffer; more than it has where the message was too long
};

/// The next message, or nothing where none is there.
std::optional<Received> receive(void* router, std::span<std::byte> buffer) {
  Received received;
  received.from.resize(256);  // an identity has at most 255 bytes
  const int name_bytes = zmq_recv(router, received.from.data(), received.from.size(), ZMQ_DONTWAIT);
  if (name_bytes < 0) return std::nullopt;
  received.from.resize(static_cast<std::size_t>(name_bytes));
  const auto has_more = [&] {
    int more = 0;
    std::size_t bytes = sizeof more;
    return zmq_getsockopt(router, ZMQ_RCVMORE, &more, &bytes) == 0 && more != 0;
  };
  if (has_more()) {
    zmq_msg_t part;  // the identity's does not always know the connection
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, router, 0) >= 0) {
      received.size = zmq_msg_size(&part);
      received.connection = connection_of(part);
      std::memcpy(buffer.data(), zmq_msg_data(&part), std::min(received.size, buffer.size()));
    }
    zmq_msg_close(&part);
  }
  for (; has_more(); received.size = buffer.size() + 1) zmq_recv(router, nullptr, 0, 0);  // a message has one part
  return received;
}

}  // namespace

class CoordinatorService::Impl {
 public:
  Impl(Options options, const JobKey& key, const Clock& clock)
      : on_progress_(std::move(options.on_progress)),
        on_notice_(std::move(options.on_notice)),
        clock_(clock),
        keeps_book_(options.plan.recovery.possible()),
        folder_(options.run_folder, options.plan.recovery.is_second),
        zap_(context_.handle(), {key.client_keys().public_key}),
        router_(context_.handle(), ZMQ_ROUTER),
        refusals_("coordinator", clock, std::move(options.on_refusals)),
        // A member that connects anew says something at its next heartbeat.
        gate_(std::in_place, context_, router_, &refusals_,
              std::max(ZmqGate::kPatience, 2 * options.plan.heartbeat_interval)),
        coordinator_(std::move(options.plan), clock.now()) {
    use_curve_server(router_.handle(), key.server_keys(), zap_);
    router_.set(ZMQ_LINGER, 1000);
    router_.set(ZMQ_SNDHWM, 0);  // few and small: none may be dropped
    const std::string address = to_string(resolve_endpoint("--listen", options.listen, 0));
    router_.set(ZMQ_IPV6, address.starts_with('[') ? 1 : 0);  // else the endpoint reads [::ffff:127.0.0.1]
    const std::int64_t most = kMaxControlBytes + 4096;        // and CURVE's share
    const bool limited = zmq_setsockopt(router_.handle(), ZMQ_MAXMSGSIZE, &most, sizeof most) == 0;
    check(limited, "ZeroMQ: {}", zmq_strerror(errno));
    if (zmq_bind(router_.handle(), fmt::format("{}{}", kScheme, address).c_str()) != 0)
      fail(ErrorKind::usage, "--listen {}: {}", options.listen, zmq_strerror(errno));
    endpoint_ = router_.get_text(ZMQ_LAST_ENDPOINT).substr(kScheme.size());
  }

  const std::string& endpoint() const { return endpoint_; }

  JobResult run(int stop_fd) {
    while (!coordinator_.ended()) {
      zmq_pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, stop_fd, ZMQ_POLLIN, 0}};
      zmq_poll(items, stop_fd >= 0 ? 2 : 1, poll_milliseconds(clock_.now(), coordinator_.next_tick()));
      if (stop_fd >= 0 && (items[1].revents & ZMQ_POLLIN) != 0) {
        stop_fd = -1;
        carry_out(coordinator_.abort(Error(ErrorKind::peer_lost, "the coordinator was interrupted"), clock_.now()));
      }
      take_messages();
      carry_out(coordinator_.tick(clock_.now()));
    }
    gate_.reset();  // it counts no more
    folder_.replace("reports/coordinator-0.json", fmt::format(R"({{"refused":{}}})", refusals_.total()));
    return coordinator_.result();
  }

 private:
  void take_messages() {
    // All that is there before the tick: what waits in the socket is no silence. Bounded, because a member
    // that floods must not keep the tick away.
    for (int i = 0; i < 4096; ++i) {
      const std::optional<Received> received = receive(router_.handle(), buffer_);
      if (!received) return;
      gate_->trust(received->connection);  // CURVE let it through
      carry_out(handle(*received));
    }
  }

  Coordinator::Actions handle(const Received& received) {
    std::optional<ControlMessage> message;
    try {
      if (received.size > buffer_.size()) fail(ErrorKind::protocol, "control message that is too long");
      message = decode_control(std::span(buffer_).first(received.size));
    } catch (const Error& error) {
      return coordinator_.receive_garbage(received.from, error, clock_.now());
    }
    return coordinator_.receive(received.from, std::move(*message), clock_.now());
  }

  void carry_out(const Coordinator::Actions& actions) {
    for (const Coordinator::Event& event : actions.events) {
      try {
        std::visit([&](const auto& what) { store(event, what); }, event.what);
      } catch (const Error& error) {
        carry_out(coordinator_.abort(error, clock_.now()));
      }
    }
    for (const Coordinator::Outgoing& outgoing : actions.messages) {
      const std::vector<std::byte> bytes = encode_control(outgoing.message);
      // To whom has gone this drops silently, and that is right: its silence or its agent tells.
      if (zmq_send(router_.handle(), outgoing.to.data(), outgoing.to.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        zmq_send(router_.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT);
    }
  }

  void store(const Coordinator::Event& event, const control::Append& append) {
    folder_.append(keeps_book_ ? event.process : "", keeps_book_ ? append.number : 0, append.file, append.bytes);
  }
  void store(const Coordinator::Event& event, const control::Report& report) {
    folder_.replace(fmt::format("reports/{}-{}.json", to_string(event.from.role), event.from.rank), report.json);
  }
  void store(const Coordinator::Event& event, const control::Progress& progress) {
    on_progress_(event.from, progress.text);
  }
  void store(const Coordinator::Event&, const control::Notice& notice) { on_notice_(notice.text); }

  std::function<void(Peer, const std::string&)> on_progress_;
  std::function<void(const std::string&)> on_notice_;
  const Clock& clock_;
  const bool keeps_book_;
  RunFolder folder_;
  ZmqContext context_;
  ZapAuthenticator zap_;
  ZmqSocket router_;
  Refusals refusals_;
  std::optional<ZmqGate> gate_;  ///< of the router
  Coordinator coordinator_;
  std::string endpoint_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxControlBytes);
};

CoordinatorService::CoordinatorService(Options options, const JobKey& key, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), key, clock)) {}
CoordinatorService::~CoordinatorService() = default;
const std::string& CoordinatorService::endpoint() const { return impl_->endpoint(); }
JobResult CoordinatorService::run(int stop_fd) { return impl_->run(stop_fd); }

}  // namespace psring::net
