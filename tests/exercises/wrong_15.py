"""Wrong solutions of exercise 15: changes to the reference solution, and the words that have to point to the cause."""

OWNER = "servers[bucket * servers.size() >> 20]"
STEP = "row[k] -= table.learning_rate() * push.gradients[i * width + k] / n;"

WRONG = {
    "the owner is a remainder": (
        [(OWNER, "servers[key % servers.size()]")],
        "S = 2: the key 0x[0-9a-f]{16} went to server ., which owns the buckets .* its bucket, the top 20 bits"),
    "buckets by turns": (
        [(OWNER, "servers[bucket % servers.size()]")],
        "went to server"),
    "everything at the first server": (
        [(OWNER, "servers[0]")],
        "S = 2: .* went to server 0, which owns the buckets 0 to 524287"),
    "one lookup after another": (
        [("  std::map<std::uint64_t, std::vector<float>> sums;", "  std::multimap<std::uint64_t, std::vector<float>> sums;"),
         ("std::vector<float>& sum = sums[batch.keys[i]];", "std::vector<float>& sum = sums.emplace(batch.keys[i], width)->second;")],
        "S = 1: the key 0x[0-9a-f]{16} was pushed more than once; it has [2-9] lookups in the batch, and one row"),
    "the last keys first": (
        [("std::map<std::uint64_t, std::vector<float>> sums;", "std::map<std::uint64_t, std::vector<float>, std::greater<>> sums;"),
         ("#include <map>", "#include <functional>\n#include <map>")],
        "the keys for server 0 are not in ascending order, in which it merges"),
    "a key that occurs once is left out": (
        [("    const std::size_t bucket", "    if (key == batch.keys[0]) continue;\n    const std::size_t bucket")],
        "of the batch was pushed to no server; its . gradients are lost"),
    "the last lookup wins": (
        [("sum[k] += batch", "sum[k] = batch")],
        "lookups: its gradient begins with .*; that is the gradient of its last lookup alone"),
    "half a row": (
        [("sum.begin(), sum.end());", "sum.begin(), sum.begin() + 1);")],
        "S = 1: [0-9]+ values for the [0-9]+ keys of server 0; rows have 3 values each"),
    "the sum over workers": (
        [(STEP, STEP.replace(" / n", ""))],
        "n = 2, [12] of them pushed .*; that is the sum of the workers' gradients"),
    "the mean over those that have the key": (
        [("  const auto n = static_cast<float>(workers.size());", "  std::map<std::uint64_t, float> having;\n  for (const RowPush& push : workers)\n"
          "    for (const std::uint64_t key : push.keys) having[key] += 1;"),
         (STEP, STEP.replace("/ n", "/ having[push.keys[i]]"))],
        "n = 2, 1 of them pushed .*; that is the mean over the workers that have the key; a worker without it has a gradient of 0"),
    "uphill": (
        [("row[k] -= ", "row[k] += ")],
        "it went uphill: subtract"),
    "only the first worker": (
        [("for (const RowPush& push : workers)\n    for (std::size_t i", "for (const RowPush& push : workers.first(1))\n    for (std::size_t i")],
        "n = 2: the row of 0x[0-9a-f]{16} does not exist, though 1 pushed|only one worker's gradient counted"),
    "a row for nobody": (
        [("  const std::size_t width = table.width();\n", "  const std::size_t width = table.width();\n  table.row(12345);\n")],
        "n = 1: 0x0000000000003039 has a row now, though nobody pushed it"),
}
