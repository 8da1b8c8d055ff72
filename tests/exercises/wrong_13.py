"""Wrong solutions of exercise 13: changes to the reference solution, and the words that have to point to the cause."""

SUM_Y = "  rank.all_reduce(pair.y.values);\n"
SUM_DX = "  rank.all_reduce(pair.dx.values);\n"
RELU = "  for (float& value : pair.hidden.values) value = std::max(value, 0.0F);\n"
MASK = "    if (pair.hidden.values[i] <= 0) before.values[i] = 0;\n"
BIAS = ("  for (std::size_t i = 0; i < pair.y.rows; ++i)\n"
        "    for (std::size_t j = 0; j < pair.y.columns; ++j) pair.y.at(i, j) += pair.c.at(0, j);\n")

WRONG = {
    "no sum in forward": (
        [(SUM_Y, "")],
        "rank 0 of 2, .* y, row 0, column 0, .* it is this rank's own summand, and the bias"),
    "no sum in backward": (
        [(SUM_DX, "")],
        "rank 0 of 2, .* dx, row 0, column 0, .* it is this rank's own summand; every rank has another one"),
    "bias at every rank before the sum": (
        [(SUM_Y + BIAS, BIAS + SUM_Y)],
        "the bias was added once at every rank, so the sum has it as often as there are ranks: add it after the sum"),
    "no bias": (
        [(BIAS, "")],
        "rank 0 of 1, .* y, .* the bias is missing"),
    "sums the bias's gradient": (
        [(SUM_DX, SUM_DX + "  rank.all_reduce(pair.dc.values);\n")],
        "dc, .* as many times too large as there are ranks: it is the same at every rank already"),
    "sums the gradients of the weights": (
        [(SUM_DX, SUM_DX + "  rank.all_reduce(pair.db.values);\n")],
        "db, .* sum over all ranks, but every rank has other columns of A and rows of B: keep your own part"),
    "averages dx": (
        [(SUM_DX, SUM_DX + "  for (float& value : pair.dx.values) value /= static_cast<float>(rank.size());\n")],
        "dx, .* it was divided by the number of ranks"),
    "no relu": (
        [(RELU, ""), (MASK, "    ;\n")],
        "hidden, .* relu is missing"),
    "no relu in backward": (
        [(MASK, "    ;\n")],
        "rank 0 of 1, .* da, row 0, .* relu is missing: it passes a value, and its gradient, only where x A is above 0"),
    "relu after the product with B": (
        [(RELU, ""), (SUM_Y, "  for (float& value : pair.y.values) value = std::max(value, 0.0F);\n" + SUM_Y)],
        "hidden, .* relu is missing"),
    "only rank 0 sums": (
        [(SUM_DX, "  if (rank.rank() == 0) rank.all_reduce(pair.dx.values);\n")],
        r"deadlock of 2 ranks: rank 0 waits in all_reduce of 15 values"),
    "sums hidden": (
        [("  multiply(read(pair.hidden), pair.b, pair.y);\n", "  rank.all_reduce(pair.hidden.values);\n  multiply(read(pair.hidden), pair.b, pair.y);\n")],
        "rank 0 of 2, .* hidden, row 0, column 0, .* it is the sum over all ranks, but every rank has other columns of A"),
    "sums row by row": (
        [(SUM_DX, "  for (std::size_t i = 0; i < pair.dx.rows; ++i) rank.all_reduce(pair.dx.values.subspan(i * pair.dx.columns, pair.dx.columns));\n")],
        "rank 0: tensor_backward hands 60 bytes to 3 all-reduces; the 60 bytes of dx in one all-reduce are enough"),
    "da without transposing x": (
        [("pair.x.columns, pair.x.rows);\n  transpose(pair.x, x_t.matrix);", "pair.x.columns, pair.x.rows);\n  std::copy(pair.x.values.begin(), pair.x.values.end(), x_t.values.begin());")],
        r"rank 0 of 1, .* da, .* in one process it is x\^T"),
    "dc of the first row": (
        [("i < pair.dy.rows", "i < 1")],
        "rank 0 of 1, .* dc, .* in one process it is the sum of the rows of dy"),
}
