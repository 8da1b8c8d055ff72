#pragma once

#include <string>

#include <psring/bench/rows/row_way.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/proc/local_cluster.h>

namespace psring::bench {

/// A program beside psring-bench that has rows in another library, and makes the same batches. Both ends come from the
/// same build: a request is a range of batches and whether to check them, an answer is the checksum and the times.
class RowPeer {
 public:
  /// Starts psring-bench-NAME in a cluster. Throws usage if it was not built.
  RowPeer(const std::string& name, const RowCase& which, LocalCluster& cluster);
  /// Throws usage, naming --peers, for a peer that is not known or was not built.
  static void require(const std::string& name);

  RowRun run(Range batches, bool check);

 private:
  const std::string name_;
  Fd socket_;
};

/// The peer's end: reads its case from the arguments that RowPeer gave the program.
class RowPeerLink {
 public:
  RowPeerLink(int argc, char** argv);

  const RowCase& which() const { return which_; }
  /// Answers requests until the benchmark hangs up.
  void serve(RowWay& way);

 private:
  Fd socket_;
  RowCase which_;
};

}  // namespace psring::bench
