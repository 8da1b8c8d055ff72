#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace psring::view {

/// A request for the live view, as far as the answer depends on it.
struct HttpRequest {
  std::string method;
  std::string path;           ///< as sent, without the query
  std::string token;          ///< of the query
  std::string authorization;  ///< this header and the following; "": absent
  std::string host;
  std::string origin;
  std::string accept;
  bool has_body = false;
};

struct HttpAnswer {
  int status = 200;
  std::string type;      ///< content type
  std::string body;      ///< of a stream: its first event
  std::string policy;    ///< Content-Security-Policy; "": nothing may be loaded
  bool streams = false;  ///< the body has no end: the connection stays open
};

/// HTTP of a library: parses one request and formats its answer. It opens no sockets and no files.
class HttpFormat {
 public:
  virtual ~HttpFormat() = default;
  /// Returns the bytes of the answer to the request with this head, which ends with an empty line.
  virtual std::string answer(std::string_view head, const std::function<HttpAnswer(const HttpRequest&)>& answer) = 0;
};

/// Loads the module with the library. Throws usage if this installation has no such module.
std::unique_ptr<HttpFormat> load_http();

/// Returns the path where the module lies.
std::string http_module_path();

}  // namespace psring::view
