#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <psring/common/base/fd.h>

namespace psring::net {

/// The files of a run that the coordinator writes for all members. Every write reaches the kernel at once, so that it
/// survives this process; what fails is an `Error` of kind `data` that names the file.
///
/// An append of a member is written exactly once, across coordinators, too: a line of a book (`reports/appends`) says,
/// before each append, whose it is, its number, the file, the file's size and how much is added. Whoever goes on undoes
/// an append that was not completed; the member, which has had no answer, sends it again.
class AppendedFiles {
 public:
  /// `goes_on`: a coordinator before this one has written to the folder.
  AppendedFiles(std::filesystem::path folder, bool goes_on);

  /// Adds to `name` unless `process` has had an append of this number or a higher one written.
  void append_once(const std::string& process, std::uint64_t number, const std::string& name,
                   std::span<const std::byte> bytes);
  void append(const std::string& name, std::span<const std::byte> bytes);
  void replace(const std::string& name, std::string_view text);

 private:
  void undo_what_was_not_completed();
  std::uintmax_t size_of(const std::string& name) const;
  Fd open(const std::string& name, int how) const;
  void write(const std::string& name, const Fd& file, std::span<const std::byte> bytes) const;

  const std::filesystem::path folder_;
  std::map<std::string, Fd> files_;
  std::map<std::string, std::uint64_t> last_;  ///< the number of a process's newest append
};

}  // namespace psring::net
