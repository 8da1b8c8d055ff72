"""Wrong solutions of exercise 01: changes to the reference solution, and the words that have to point to the cause."""

SEND_FIRST = """    link.send((rank + 1) % n, part(link, values, rank + n - round));
    link.recv((rank + n - 1) % n, arrived);
"""
RECEIVE_FIRST = """    link.recv((rank + n - 1) % n, arrived);
    link.send((rank + 1) % n, part(link, values, rank + n - round));
"""
ADD = "for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += arrived[i];"

WRONG = {
    "off by one in a range": (
        [(ADD, "for (std::size_t i = 0; i + 1 < sum.size(); ++i) sum[i] += arrived[i];")],
        r"byte 0: element 0 is 0, not 6; it is the rank's own value alone: nothing was added"),
    "the neighbour's part": (
        [("rank + n - round));\n    link.recv((rank + n - 1) % n, arrived)", "rank + n - round + 1));\n    link.recv((rank + n - 1) % n, arrived)"),
         ("rank + 2 * n - round - 1)", "rank + 2 * n - round)")],
        "here the sum of the part of rank 1 is complete instead"),
    "a round too few": (
        [("round = 1; round < n;", "round = 1; round + 1 < n;")],
        "it is the rank's own value alone: nothing was added"),
    "a round too many": (
        [("round = 1; round < n;", "round = 1; round <= n;")],
        "n = 1: rank 0: send to rank 0: the other ranks of 1 are 0 to 0 without 0"),
    "overwrites instead of adding": (
        [("sum[i] += arrived[i]", "sum[i] = arrived[i]")],
        "it lacks the value of rank 0, 2, 3"),
    "the mean instead of the sum": (
        [(ADD, ADD.replace("sum.size(); ++i)", "sum.size(); ++i)") + "\n    if (round + 1 == n)\n      for (float& value : sum) value /= n;")],
        "it is the mean; a reduce-scatter adds, and does not divide by 4"),
    "receives before it sends": (
        [(SEND_FIRST, RECEIVE_FIRST)],
        "deadlock of 4 ranks: rank . waits in recv from rank"),
    "sends to itself": (
        [("link.send((rank + 1) % n, part(link, values, rank + n - round));\n    link.recv((rank + n - 1) % n, arrived)",
          "link.send(rank, part(link, values, rank + n - round));\n    link.recv((rank + n - 1) % n, arrived)")],
        "send to rank 0: the other ranks of 4 are 0 to 3 without 0"),
    "the wrong rank order": (
        [("link.recv((rank + n - 1) % n, arrived)", "link.recv((rank + 1) % n, arrived)")],
        "deadlock of 4 ranks: rank 0 waits in recv from rank 1"),
    "all of the vector in each message": (
        [(SEND_FIRST, """    std::vector<float> all(values.begin(), values.end());
    link.send((rank + 1) % n, all);
    link.recv((rank + n - 1) % n, all);
    for (std::size_t i = 0; i < arrived.size(); ++i) arrived[i] = all[(rank + 2 * n - round - 1) % n * arrived.size() + i];
""")],
        r"rank 0 of 2 sent 512 bytes; \(n - 1\)/n · M are 256 bytes at every rank"),
    "for four ranks only": (
        [("const std::size_t n = link.size();\n  const std::size_t rank = link.rank();\n  std::vector<float> arrived",
          "const std::size_t n = 4;\n  const std::size_t rank = link.rank();\n  std::vector<float> arrived")],
        "n = 2: rank 1: send to rank 2: the other ranks of 2 are 0 to 1 without 1|n = 2"),
    "another message length": (
        [("link.recv((rank + n - 1) % n, arrived)", "link.recv((rank + n - 1) % n, std::span(arrived).first(arrived.size() / 2))")],
        "recv from rank . asks for 0 values, but the message has 1"),
    "all_gather starts with another part": (
        [("round = 0; round + 1 < n", "round = 1; round < n")],
        "all_gather: rank 0 of 2, the part of rank 0, byte 0: element 0 is nan, not 859; it was never received"),
}
