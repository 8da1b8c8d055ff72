# Debian's cpp-httplib ships no CMake package: find it by hand, as the target httplib::httplib. The definitions are those
# of its pkg-config file: the library was built with them.
find_path(HTTPLIB_INCLUDE_DIR httplib.h)
find_library(HTTPLIB_LIBRARY cpp-httplib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Httplib REQUIRED_VARS HTTPLIB_LIBRARY HTTPLIB_INCLUDE_DIR)
if(Httplib_FOUND AND NOT TARGET httplib::httplib)
  add_library(httplib::httplib UNKNOWN IMPORTED)
  set_target_properties(httplib::httplib PROPERTIES IMPORTED_LOCATION ${HTTPLIB_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${HTTPLIB_INCLUDE_DIR} INTERFACE_COMPILE_DEFINITIONS
    "CPPHTTPLIB_OPENSSL_SUPPORT;CPPHTTPLIB_ZLIB_SUPPORT;CPPHTTPLIB_BROTLI_SUPPORT")
endif()
mark_as_advanced(HTTPLIB_INCLUDE_DIR HTTPLIB_LIBRARY)
