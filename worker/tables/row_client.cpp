#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/tables/row_client.h>

namespace psring::worker {

RowClient::RowClient(PsClient& client) : client_(client), protocol_(client.layout(), client.mark()) {
  client_.set_receiver([this](const net::Message& message) {
    const bool takes = TableProtocol::takes(message.header.type);
    if (takes) protocol_.on_message(message);
    return takes;
  });
}

RowClient::~RowClient() { client_.set_receiver(nullptr); }

std::string RowClient::name_of(std::size_t table, std::uint64_t version) const {
  const std::string& name = layout().tables[table].name;
  return version == kFinalVersion ? fmt::format("the final rows of '{}'", name)
                                  : fmt::format("rows of '{}', step {}", name, version);
}

void RowClient::pull(std::size_t table, const RowKeys& keys, std::uint64_t version, Elements into, RowUse use) {
  client_.send([&](Frames& out) { protocol_.pull(table, keys, version, into, use, out); },
               [&] { return "the request for " + name_of(table, version); });
}

void RowClient::push(std::size_t table, std::uint64_t step, ConstElements gradients, net::Encoding encoding) {
  client_.begin_step(step);
  client_.send([&](Frames& out) { protocol_.push(table, step, gradients, encoding, out); },
               [&] { return "gradients of " + name_of(table, step); });
}

void RowClient::send(const std::function<void(Frames&)>& begin) {
  client_.send(begin, [] { return std::string("keys and rows of tables"); });
}

void RowClient::wait(std::size_t table, std::uint64_t version, RowUse use) {
  client_.wait([&] { return protocol_.arrived(table, version, use); }, [&] { return name_of(table, version); });
}

void RowClient::wait_acknowledged(std::size_t table) {
  client_.wait([&] { return protocol_.acknowledged(table); },
               [&] { return fmt::format("the servers to take gradients of '{}'", layout().tables[table].name); });
}

}  // namespace psring::worker
