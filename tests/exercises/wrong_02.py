"""Wrong solutions of exercise 02: changes to the reference solution, and the words that have to point to the cause."""

REDUCE = "    worker.wait(worker.start_all_reduce(gradients));\n"

WRONG = {
    "no divisor": (
        [("gradients[i] / n", "gradients[i]")],
        "the update is 4 times too large: the sum over the workers was not divided by 4"),
    "a wrong divisor": (
        [("gradients[i] / n", "gradients[i] / (n - 1)")],
        "the update is 1.33 times the expected one: which divisor, which learning rate?"),
    "divided twice": (
        [("gradients[i] / n", "gradients[i] / n / n")],
        "the update is 4 times too small: was the sum divided by 4 twice?"),
    "missing wait": (
        [(REDUCE, "    worker.start_all_reduce(gradients);\n")],
        r"worker 0 started operations and never waited for them; missing: wait\(0\), all_reduce of 30 values"),
    "waits too late": (
        [(REDUCE, "    const auto operation = worker.start_all_reduce(gradients);\n"),
         ("gradients[i] / n;\n", "gradients[i] / n;\n    worker.wait(operation);\n")],
        "layer 0, element 0, byte 0 .* they are not numbers: values were read before their operation was waited for"),
    "one layer is left out": (
        [("for (std::size_t layer = worker.layers(); layer-- > 0;) {", "for (std::size_t layer = worker.layers(); --layer > 0;) {"),],
        "layer 0, element 0, .* the parameters have not changed"),
    "one layer is not reduced": (
        [(REDUCE, "    if (layer > 0) worker.wait(worker.start_all_reduce(gradients));\n"),
         ("gradients[i] / n", "gradients[i] / (layer > 0 ? n : 1)")],
        "worker 0, layer 0, .* it was updated with this worker's own gradient"),
    "the last element is left out": (
        [("worker.start_all_reduce(gradients)", "worker.start_all_reduce(gradients.first(gradients.size() - 1))"),],
        "layer 0, element 59, byte 236 of its parameters"),
    "another order at each worker": (
        [("    const std::span<float> gradients = worker.gradients(layer, layer + 1);\n    worker.wait",
          "    const std::size_t mine = (layer + worker.rank()) % worker.layers();\n    const std::span<float> gradients = worker.gradients(mine, mine + 1);\n    worker.wait"),
         ("worker.parameters(layer, layer + 1)", "worker.parameters(mine, mine + 1)")],
        r"operation #0: rank . called all_reduce of \d+ f32 .sum., rank . all_reduce of \d+ f32"),
    "only some workers reduce": (
        [(REDUCE, "    if (worker.rank() > 0) worker.wait(worker.start_all_reduce(gradients));\n")],
        r"deadlock of 4 workers: rank 1 waits in wait\(0\), all_reduce of 30 values"),
    "averages parameters after the update": (
        [(REDUCE, ""), ("gradients[i] / n;\n", "gradients[i] / n;\n    worker.wait(worker.start_all_reduce(parameters));\n")],
        "is no multiple of the mean gradient|times the expected one"),
    "climbs": (
        [("parameters[i] -=", "parameters[i] +=")],
        "the update has the wrong sign: parameters move against the gradient"),
    "reduces before backward": (
        [("  for (std::size_t layer = worker.layers(); layer-- > 0;) worker.backward(layer);\n", ""),
         ("gradients[i] / n;\n", "gradients[i] / n;\n    worker.backward(layer);\n")],
        "they are not numbers"),
    "no forward": (
        [("  worker.forward();\n", "")],
        r"rank 0: backward\(3\): the next layer of backward is none: call forward first"),
    "backward from the first layer": (
        [("for (std::size_t layer = worker.layers(); layer-- > 0;) worker.backward(layer)",
          "for (std::size_t layer = 0; layer < worker.layers(); ++layer) worker.backward(layer)")],
        r"backward\(0\): the next layer of backward is 3"),
    "reduces everything twice": (
        [(REDUCE, REDUCE + REDUCE), ("gradients[i] / n", "gradients[i] / n / n")],
        "worker 0 handed 3600 bytes to collectives in a step; the gradients have 1800"),
}
