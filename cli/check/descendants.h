#pragma once

namespace psring::cli {

/// Keeps hold of every process that this process starts, directly or through others: a process whose parent has ended
/// becomes a child of this one, also if it began a session of its own. One object at a time; the process starts no
/// other children meanwhile.
class Descendants {
 public:
  Descendants();
  /// Kills and reaps all processes that are left.
  ~Descendants();
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;
};

}  // namespace psring::cli
