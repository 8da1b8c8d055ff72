#pragma once

#include <psring/worker/servers/ps_client.h>
#include <psring/worker/tables/table_protocol.h>

namespace psring::worker {

/// The rows of a job's tables at its servers: TableProtocol, whose frames travel through a PsClient. Starting calls
/// never wait. Belongs to the client's thread.
class RowClient {
 public:
  using Frames = TableProtocol::Frames;

  /// REQUIRES: the client outlives it, and has no other RowClient.
  explicit RowClient(PsClient& client);
  RowClient(const RowClient&) = delete;
  RowClient& operator=(const RowClient&) = delete;
  ~RowClient();

  const Layout& layout() const { return client_.layout(); }

  /// See TableProtocol.
  void pull(std::size_t table, const RowKeys& keys, std::uint64_t version, Elements into, RowUse use);
  void push(std::size_t table, std::uint64_t step, ConstElements gradients, net::Encoding encoding);
  /// Waits until all rows of the last pull of this version are here. Throws as PsClient::wait.
  void wait(std::size_t table, std::uint64_t version, RowUse use);
  /// Waits until the servers have taken all gradients of the table.
  void wait_acknowledged(std::size_t table);

  TableProtocol& protocol() { return protocol_; }
  const TableProtocol& protocol() const { return protocol_; }
  /// Calls `begin`, and sends the frames that it adds.
  void send(const std::function<void(Frames&)>& begin);

 private:
  std::string name_of(std::size_t table, std::uint64_t version) const;

  PsClient& client_;
  TableProtocol protocol_;
};

}  // namespace psring::worker
