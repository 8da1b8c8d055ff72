// A program that pushes a vector to psring-server, and pulls the updated values:
//   psring keygen job.key
//   psring coordinator --workers 1 --servers 1 --steps 2 --lr 0.5 --key job.key --listen 127.0.0.1:7000 &
//   psring-server --rdzv-endpoint 127.0.0.1:7000 --key job.key &
//   ./push_pull 127.0.0.1:7000 job.key
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>

#include <psring/worker/session.h>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: push_pull HOST:PORT KEYFILE\n");
    return 2;
  }
  psring::worker::Session session({.endpoint = argv[1], .key_file = argv[2]}, 1000);  // a vector of 1000 zeros
  const std::span<float> gradient = session.gradients();
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < 1000; ++i) gradient[i] = -static_cast<float>(i);
    session.push(step);      // the server applies SGD: vector -= lr * gradient
    session.pull(step + 1);  // the vector after that update
    std::printf("version %d: %g %g ... %g\n", static_cast<int>(step) + 1, session.parameters()[1],
                session.parameters()[2], session.parameters()[999]);
  }
  session.finish();
} catch (const std::exception& error) {
  std::fprintf(stderr, "push_pull: %s\n", error.what());
  return 1;
}
