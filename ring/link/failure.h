#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/base/error.h>
#include <psring/common/net/transport.h>

namespace psring::ring {

/// The error that ended all groups of a transport. The rank that finds an error tells all others, so that every rank
/// throws the same line.
class LinkFailure {
 public:
  LinkFailure(net::Transport& transport, const Clock& clock, std::size_t rank, std::size_t ranks)
      : transport_(transport), clock_(clock), rank_(rank), ranks_(ranks) {}

  /// Ends all groups, here and at the other ranks. Does nothing if they have ended already.
  void break_off(const Error& error) noexcept;
  [[noreturn]] void end(const Error& error) {
    break_off(error);
    throw error;
  }
  /// The error that all ranks know.
  const std::optional<Error>& told() const { return told_; }

  /// The background thread, or an operation that is complete all the same, found an error; the owner's next call names
  /// its operation and tells the other ranks.
  void find(const Error& error) { found_ = error; }
  bool any() const { return told_ || found_; }
  /// Throws the error that all ranks know, or the error that was found.
  void rethrow() const {
    if (told_) throw *told_;
    if (found_) throw *found_;
  }
  /// Throws; tells the other ranks about an error that was found, with the operation that this rank was to start.
  void rethrow_and_tell(const std::string& doing) {
    if (told_) throw *told_;
    if (found_) end(found_->with_context(doing));
  }

 private:
  void let_words_leave();
  bool words_in_flight() const;

  net::Transport& transport_;
  const Clock& clock_;
  const std::size_t rank_;
  const std::size_t ranks_;
  std::optional<Error> found_;
  std::optional<Error> told_;
  std::string last_words_;  ///< the error line; the transport reads it after `send` has returned
};

}  // namespace psring::ring
