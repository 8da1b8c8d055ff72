#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace {

namespace fs = std::filesystem;

/// A file's includes, as written between < and > or quotes (these with them), by its path in the repository.
using Tree = std::map<std::string, std::vector<std::string>>;

/// The include rules of docs/design/house.md: a folder may include itself and the folders named beside it.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"common/base", {}},
    {"common/device", {"common/base"}},
    {"common/net", {"common/base", "common/device"}},
    {"common/proc", {"common/base", "common/device", "common/net"}},
    {"optim", {"common/base", "common/device", "common/net", "common/proc"}},
    {"ring", {"common/base", "common/device", "common/net", "common/proc"}},
    {"server", {"common/base", "common/device", "common/net", "common/proc", "optim"}},
    {"c.h", {}},
    {"worker", {"c.h", "common/base", "common/device", "common/net", "common/proc", "optim", "ring"}},
    {"bench", {"common/base", "common/device", "common/net", "common/proc", "optim", "ring", "server", "worker"}},
    {"view",
     {"common/base", "common/device", "common/net", "common/proc", "optim", "ring", "server", "worker", "bench"}},
    {"cli",
     {"common/base", "common/device", "common/net", "common/proc", "optim", "ring", "server", "worker", "bench",
      "view"}},
};

/// Libraries whose headers take long to compile: sources include them, headers do not.
constexpr std::array kHeavy = {"Eigen/",      "unsupported/Eigen", "cereal/",   "zmq",    "dnnl",
                               "oneapi/dnnl", "catch2/",           "nlohmann/", "CLI/",   "spdlog/",
                               "sodium",      "benchmark/",        "zlib",      "httplib"};

std::string folder_of(std::string_view path) {
  const std::size_t first = path.find('/');
  std::string top(path.substr(0, first));
  if (top != "common") return top;
  return std::string(path.substr(0, path.find('/', first + 1)));
}

/// The file of ours that an include names; "" for a library's.
std::string ours(const std::string& include) {
  constexpr std::string_view kPrefix = "psring/";
  return include.starts_with(kPrefix) ? include.substr(kPrefix.size()) : "";
}

std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> includes;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') continue;
    const std::size_t word = line.find_first_not_of(" \t", hash + 1);
    if (word == std::string::npos || line.compare(word, 7, "include") != 0) continue;
    const std::size_t open = line.find_first_of("<\"", word);
    if (open == std::string::npos) continue;
    const std::size_t close = line.find_first_of(">\"", open + 1);
    const bool quoted = line[open] == '"';
    includes.push_back(quoted ? line.substr(open, close - open + 1) : line.substr(open + 1, close - open - 1));
  }
  return includes;
}

Tree read_tree(const fs::path& root) {
  Tree tree;
  std::set<std::string> tops;
  for (const auto& [folder, allowed] : kMayInclude) tops.insert(folder.substr(0, folder.find('/')));
  for (const std::string& top : tops) {
    if (!fs::exists(root / top)) continue;  // ring comes later
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")
        tree[entry.path().lexically_relative(root).generic_string()] = includes_of(entry.path());
    }
  }
  // The header of the C interface, which has a folder of its own, so that C programs reach no header of C++.
  tree["c.h"] = includes_of(root / "worker" / "c" / "include" / "psring" / "c.h");
  return tree;
}

bool is_header(const std::string& file) { return file.ends_with(".h") || file.ends_with(".cuh"); }

void check_include(const Tree& tree, const std::string& file, const std::string& include,
                   std::vector<std::string>& wrong) {
  if (include.starts_with('"')) wrong.push_back(file + " includes " + include + ": ours are included as <psring/...>");
  // The references of two exercises are matrices, and three sources include them.
  if (is_header(file) && include != "nlohmann/json_fwd.hpp" && file != "cli/check/references.h" &&
      std::any_of(kHeavy.begin(), kHeavy.end(), [&](auto heavy) { return include.starts_with(heavy); }))
    wrong.push_back(file + " includes the heavy " + include);
  const std::string target = ours(include);
  if (target.empty()) return;
  if (!tree.contains(target)) wrong.push_back(file + " includes " + target + ", which is not there");
  const std::string from = folder_of(file);
  const std::string to = folder_of(target);
  const auto rule = kMayInclude.find(from);
  if (rule == kMayInclude.end()) {
    wrong.push_back(file + " is in a folder without a rule");
  } else if (from != to && !rule->second.contains(to) && !file.ends_with("/main.cpp")) {
    wrong.push_back(file + " includes " + target + ": " + from + " may not include " + to);
  }
}

/// Appends the cycles that go through `file`; `path` is the way from where the search began.
void find_cycles(const Tree& tree, const std::string& file, std::vector<std::string>& path, std::set<std::string>& done,
                 std::vector<std::string>& wrong) {
  if (const auto seen = std::find(path.begin(), path.end(), file); seen != path.end()) {
    std::string cycle = "a cycle:";
    for (auto at = seen; at != path.end(); ++at) cycle += " " + *at;
    wrong.push_back(cycle);
    return;
  }
  const auto found = tree.find(file);
  if (found == tree.end() || done.contains(file)) return;
  path.push_back(file);
  for (const std::string& include : found->second)
    if (const std::string target = ours(include); !target.empty()) find_cycles(tree, target, path, done, wrong);
  path.pop_back();
  done.insert(file);
}

std::vector<std::string> violations(const Tree& tree) {
  std::vector<std::string> wrong;
  std::set<std::string> done;
  for (const auto& [file, includes] : tree) {
    for (const std::string& include : includes) check_include(tree, file, include, wrong);
    std::vector<std::string> path;
    find_cycles(tree, file, path, done, wrong);
  }
  return wrong;
}

}  // namespace

TEST_CASE("sources include only what the design allows") {
  const Tree tree = read_tree(PSRING_SOURCE);
  // That the search found the tree, and reads includes.
  REQUIRE(tree.size() > 150);
  REQUIRE(tree.contains("worker/model/layers/linear.cpp"));
  const auto& linear = tree.at("worker/model/layers/linear.cpp");
  REQUIRE(std::count(linear.begin(), linear.end(), "psring/worker/model/layers/linear.h") == 1);

  for (const std::string& wrong : violations(tree)) FAIL_CHECK(wrong);
}

TEST_CASE("what the design forbids is found") {
  const auto planted = [](const std::string& file, const std::string& include) {
    Tree tree = {{"common/base/a.h", {"vector"}},
                 {"common/net/n.h", {"psring/common/base/a.h"}},
                 {"optim/o.h", {"psring/common/net/n.h"}},
                 {"ring/r.h", {}},
                 {"server/s.h", {"psring/optim/o.h"}},
                 {"server/s.cpp", {"psring/server/s.h", "Eigen/Core"}},
                 {"server/main.cpp", {"psring/cli/c.h"}},
                 {"worker/w.h", {"psring/ring/r.h"}},
                 {"cli/c.h", {"psring/worker/w.h", "psring/server/s.h"}}};
    if (!include.empty()) tree[file].push_back(include);
    return violations(tree);
  };
  CHECK(planted("", "").empty());
  const auto [file, include] = GENERATE(table<std::string, std::string>({
      {"common/base/a.h", "psring/common/net/n.h"},  // upwards (and a cycle)
      {"server/s.cpp", "psring/worker/w.h"},         // server and worker never meet
      {"worker/w.h", "psring/server/s.h"},
      {"server/s.cpp", "psring/ring/r.h"},
      {"optim/o.h", "psring/ring/r.h"},
      {"worker/w.h", "psring/cli/c.h"},
      {"extra/x.cpp", "psring/common/base/a.h"},  // a folder that the design does not know
      {"server/s.h", "Eigen/Core"},
      {"worker/w.h", "oneapi/dnnl/dnnl.hpp"},
      {"cli/c.h", "CLI/CLI.hpp"},
      {"common/net/n.h", "zmq.hpp"},
      {"common/base/a.h", "psring/common/base/gone.h"},
      {"server/s.cpp", "\"s.h\""},
  }));
  CAPTURE(file, include);
  CHECK_FALSE(planted(file, include).empty());
}

TEST_CASE("a cycle of headers is found") {
  const Tree tree = {
      {"optim/a.h", {"psring/optim/b.h"}}, {"optim/b.h", {"psring/optim/c.h"}}, {"optim/c.h", {"psring/optim/a.h"}}};
  CHECK(violations(tree) == std::vector<std::string>{"a cycle: optim/a.h optim/b.h optim/c.h"});
}
