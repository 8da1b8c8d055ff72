// Workers count the words of a text's lines; the servers keep a number for each word, and add up what is pushed:
//   psring coordinator --workers 2 --servers 1 --steps 1 --consistency asp --table-optimizer sum ... &
//   ./word_count role-server --rdzv-endpoint 127.0.0.1:7000 --key job.key &
//   ./word_count count 127.0.0.1:7000 job.key TEXT WORD      # two of them; each prints the number of WORD in all lines
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include <psring/cli/app.h>
#include <psring/optim/rows/kv_handle.h>
#include <psring/worker/kv_client.h>

int count(char** argv) {
  psring::worker::KvClient client({.endpoint = argv[2], .key_file = argv[3]}, {.width = 1});
  std::ifstream text(argv[4]);
  std::string line;
  for (std::size_t number = 0; std::getline(text, line); ++number) {
    if (number % client.workers() != client.rank()) continue;
    std::vector<std::uint64_t> words;
    std::istringstream in(line);
    for (std::string word; in >> word;) words.push_back(std::hash<std::string>()(word));
    client.push(words, std::vector<float>(words.size(), 1));  // a word that repeats is added up
  }
  const std::vector<std::uint64_t> keys{0, std::hash<std::string>()(argv[5])};  // key 0: workers that are through
  client.push(std::span(keys).first(1), std::vector<float>{1});
  std::vector<float> counts(2);
  while (counts[0] < static_cast<float>(client.workers())) client.pull(keys, counts);
  std::printf("%s: %g\n", argv[5], counts[1]);
  client.finish();
  return 0;
}

int main(int argc, char** argv) {
  const auto add = [](auto values, auto /*state*/, auto pushed, float /*lr*/) { values[0] += pushed[0]; };
  psring::App app;
  app.row_rules().add("sum", "adds what is pushed", psring::optim::kv_handle({.push = add}));
  if (argc == 6 && argv[1] == std::string_view("count")) return psring::App::guard([&] { return count(argv); });
  return app.run(argc, argv);
}
