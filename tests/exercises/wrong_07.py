"""Wrong solutions of exercise 07: changes to the reference solution, and the words that have to point to the cause."""

GATHER = "  worker.wait(worker.start_all_gather(parameters));\n"
UPDATE = "momentum[i] = kMomentum * momentum[i] + gradients[own] / n;"
REDUCE = "  worker.wait(worker.start_reduce_scatter(gradients));\n"

WRONG = {
    "no gather": (
        [(GATHER, "")],
        "every worker has updated its own part only: gather the updated parts"),
    "gathers before the update": (
        [(GATHER, ""), (REDUCE, REDUCE + GATHER)],
        "every worker has updated its own part only: gather the updated parts"),
    "the momentum is forgotten": (
        [("const std::span<float> momentum = worker.state(0, each);", "std::vector<float> momentum(each);")],
        "each step begins with a momentum of 0: keep the momentum in state"),
    "no momentum": (
        [(UPDATE, "momentum[i] = gradients[own] / n;")],
        "each step begins with a momentum of 0: keep the momentum in state"),
    "no divisor": (
        [("gradients[own] / n", "gradients[own]")],
        "the update is 4 times too large: the sum over the workers was not divided by 4"),
    "another worker's part": (
        [("worker.rank() * each + i", "i")],
        r"the part of worker 1, elements \[105, 210\) of all parameters, has not changed at any worker: worker 1 has to update"),
    "the parameters of another worker's part": (
        [("parameters[own] -=", "parameters[i] -=")],
        r"the part of worker 1, elements \[105, 210\) of all parameters, has not changed at any worker"),
    "the sum of one layer is not taken": (
        [(REDUCE, "  worker.wait(worker.start_reduce_scatter(worker.gradients(1, worker.layers())));\n")],
        "is no multiple of the mean gradient|they are not numbers"),
    "momentum of all parameters": (
        [("worker.state(0, each)", "worker.state(0, gradients.size())")],
        "worker 0 keeps 1680 bytes of optimizer state; its part of the momentum is 420, a quarter of 1680"),
    "all-reduce in place of reduce-scatter": (
        [("start_reduce_scatter", "start_all_reduce")],
        "worker 0 calls all-reduce, which gives every worker the whole mean"),
    "gathers twice": (
        [(GATHER, GATHER + GATHER)],
        "worker 0 reduces 1680 and gathers 3360 bytes in a step; it should be 1680 each"),
}
