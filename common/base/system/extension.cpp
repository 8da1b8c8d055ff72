#include <cstdlib>
#include <memory>

#include <cxxabi.h>

#include <psring/common/base/system/extension.h>

namespace psring {

std::string name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    &std::free);
  return status == 0 ? name.get() : type.name();
}

void rethrow_from_extension(const std::string& part) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& exception) {
    if (to_error(exception).kind() != ErrorKind::bug) throw;
    fail(ErrorKind::bug, "{} threw {}: {}", part, name_of(typeid(exception)), exception.what());
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    fail(ErrorKind::bug, "{} threw {}, which is no std::exception", part, type != nullptr ? name_of(*type) : "?");
  }
}

}  // namespace psring
