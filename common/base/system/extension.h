#pragma once

#include <string>
#include <typeinfo>
#include <utility>

#include <psring/common/base/text/error.h>

namespace psring {

/// The name of a class, with its namespaces.
std::string name_of(const std::type_info& type);

/// Rethrows the exception that is being handled. An Error, and any exception that to_error can classify (memory,
/// threads), stays as it is. Any other exception becomes Error(bug) with the line "PART threw TYPE: MESSAGE".
[[noreturn]] void rethrow_from_extension(const std::string& part);

/// Calls a part that a program may have added: a layer, a strategy, a data set, an optimizer, or a factory. Returns the
/// result of `call`; exceptions go through rethrow_from_extension. `part` returns the part's name, and is called only
/// after an exception.
template <class Part, class Call>
decltype(auto) call_extension(const Part& part, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_from_extension(part());
  }
}

}  // namespace psring
