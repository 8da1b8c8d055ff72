#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <psring/common/base/system/fd.h>

namespace psring::net {

/// The files of a run that the coordinator writes for all members. Every write reaches the kernel at once, so it
/// survives this process. Errors are of kind `data` and name the file.
///
/// A member's append is written exactly once, even across coordinators. Before each append, a line of the journal
/// `reports/appends` names the process, the append's number, the file, the file's size and the number of bytes. A
/// second coordinator undoes an append that was not completed; the member, which got no answer, sends it again.
class AppendedFiles {
 public:
  /// `goes_on`: a previous coordinator has written to the folder.
  AppendedFiles(std::filesystem::path folder, bool goes_on);

  /// Appends to `name`, unless an append of `process` with this number or a higher one was written. Returns whether it
  /// appended.
  bool append_once(const std::string& process, std::uint64_t number, const std::string& name,
                   std::span<const std::byte> bytes);
  void append(const std::string& name, std::span<const std::byte> bytes);
  void replace(const std::string& name, std::string_view text);
  /// The same; a reader sees the old text or the new one, whole.
  void publish(const std::string& name, std::string_view text);
  /// Returns the size that `name` had before its first append of the journal; its present size if there was none.
  std::uintmax_t size_before_appends(const std::string& name) const;

 private:
  void undo_incomplete_append();
  std::uintmax_t size_of(const std::string& name) const;
  Fd open(const std::string& name, int how) const;
  void write(const std::string& name, const Fd& file, std::span<const std::byte> bytes) const;

  const std::filesystem::path folder_;
  std::map<std::string, Fd> files_;
  std::map<std::string, std::uint64_t> last_;  ///< the number of the newest append, by process
};

}  // namespace psring::net
