// A user's own worker, which pushes and pulls one vector: own_worker HOST:PORT KEYFILE ELEMENTS STEPS
#include <cstdint>
#include <string>
#include <vector>

#include <psring/cli/app.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/session.h>

using namespace psring;

namespace {

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) fail(ErrorKind::usage, "four arguments");
  worker::Session session({.endpoint = arguments[1], .key_file = arguments[2]}, std::stoul(arguments[3]));
  for (std::uint64_t step = 0; step < std::stoul(arguments[4]); ++step) session.push_pull(step);
  session.finish();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return App::guard([&] { return run({argv, argv + argc}); });
}
