/// psring-bench-ps-lite: rows in ps-lite, with a scheduler, a server and a worker over loopback TCP. The server's
/// handle is an unordered_map of rows. RowPeerLink reads the arguments.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>

#include <arpa/inet.h>
#include <ps/ps.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <psring/bench/peers/row_peer.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {
namespace {

/// A port of loopback that nobody listens at; the scheduler takes it next.
std::string free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail(ErrorKind::data, "no free port");
  return std::to_string(ntohs(address.sin_port));
}

/// The server's rows: values, then the state.
class Rows {
 public:
  explicit Rows(const RowCase& which) : width_(which.width) { rows_.reserve(which.rows); }

  void operator()(const ps::KVMeta& asked, const ps::KVPairs<float>& data, ps::KVServer<float>* server) {
    ps::KVPairs<float> answer;
    if (asked.pull) {
      answer.keys = data.keys;
      answer.vals.resize(data.keys.size() * width_);
    }
    for (std::size_t i = 0; i < data.keys.size(); ++i) {
      const ps::Key key = data.keys.data()[i];
      const float* const gradient = data.vals.data() + i * width_;
      if (asked.push) {
        std::unique_ptr<float[]>& row = rows_[key];
        if (!row) row = std::make_unique<float[]>(width_ + 1);
        update_row(width_, row.get(), row[width_], gradient);
      } else if (const auto row = rows_.find(key); row != rows_.end()) {
        std::copy_n(row->second.get(), width_, answer.vals.data() + i * width_);
      }
    }
    server->Response(asked, answer);
  }

 private:
  const std::size_t width_;
  std::unordered_map<ps::Key, std::unique_ptr<float[]>> rows_;
};

/// The worker's side; its calls copy nothing.
class PsLiteRows final : public RowWay {
 public:
  PsLiteRows(const RowCase& which, pid_t server)
      : server_(server),
        width_(which.width),
        worker_(0, 0),
        keys_(which.lookups),
        gradients_(which.lookups * which.width),
        rows_(which.lookups * which.width) {}

  std::span<std::uint64_t> keys() override { return {keys_.data(), keys_.size()}; }
  std::span<float> gradients() override { return {gradients_.data(), gradients_.size()}; }
  std::span<const float> rows() const override { return {rows_.data(), rows_.size()}; }
  void pull(std::size_t keys) override {
    ps::SArray<float> into = rows_.segment(0, keys * width_);
    worker_.Wait(worker_.ZPull(keys_.segment(0, keys), &into));
  }
  void push(std::size_t keys) override {
    worker_.Wait(worker_.ZPush(keys_.segment(0, keys), gradients_.segment(0, keys * width_)));
  }

  double cpu_s() const override { return cpu_of(0) + cpu_of(server_); }

 private:
  const pid_t server_;
  const std::size_t width_;
  ps::KVWorker<float> worker_;
  ps::SArray<ps::Key> keys_;
  ps::SArray<float> gradients_;
  ps::SArray<float> rows_;
};

/// The role of this process or of a child, which ends with this process. `server`: the child that is the server.
std::string fork_roles(pid_t& server) {
  for (const char* role : {"scheduler", "server"}) {
    server = ::fork();
    if (server > 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return role;
  }
  return "worker";
}

void run(int argc, char** argv) {
  RowPeerLink link(argc, argv);
  const std::string port = free_port();
  pid_t server_process = 0;
  const std::string role = fork_roles(server_process);
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"DMLC_ROLE", role},
                                    {"DMLC_NUM_SERVER", "1"},
                                    {"DMLC_NUM_WORKER", "1"},
                                    {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                    {"DMLC_PS_ROOT_PORT", port},
                                    {"DMLC_NODE_HOST", "127.0.0.1"}})
    ::setenv(name, value.c_str(), 1);
  ps::Start(0);
  std::unique_ptr<ps::KVServer<float>> server;
  if (role == "server") {
    server = std::make_unique<ps::KVServer<float>>(0);
    server->set_request_handle([rows = std::make_shared<Rows>(link.which())](const auto& asked, const auto& data,
                                                                             auto* own) { (*rows)(asked, data, own); });
  }
  if (role == "worker") {
    PsLiteRows rows(link.which(), server_process);
    link.serve(rows);
  }
  ps::Finalize(0, true);
}

}  // namespace
}  // namespace psring::bench

int main(int argc, char** argv) {
  try {
    psring::bench::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "psring: %s\n", error.what());
    return psring::exit_status(psring::ErrorKind::peer_lost);
  }
}
