"""Wrong solutions of exercise 14: changes to the reference solution, and the words that have to point to the cause."""

ADD = "sum[i] += own[i] / static_cast<float>(stage.micro_batches());"
SEND_BACK = "  if (stage.stage() > 0) stage.send(stage.stage() - 1, input_gradient);\n"
RECV = "  if (stage.stage() > 0) stage.recv(stage.stage() - 1, input);\n"

WRONG = {
    "no divisor": (
        [(ADD, "sum[i] += own[i];")],
        "P = 1, m = 3: stage 0, gradient 0, byte 0: .* the sum over the 3 micro-batches was not divided by 3"),
    "divided twice": (
        [(ADD, "sum[i] += own[i] / static_cast<float>(stage.micro_batches()) / static_cast<float>(stage.micro_batches());")],
        "it was divided by 3 twice"),
    "overwrites": (
        [("sum[i] += ", "sum[i] = ")],
        "P = 1, m = 3: stage 0, .* it is that of micro-batch 2 alone: the micro-batches add up, each with 1/3"),
    "never writes gradients": (
        [(ADD, "(void)own;")],
        "P = 1, m = 1: stage 0, .* gradients.. was never written: add micro_gradients.. after each backward"),
    "skips a micro-batch's gradients": (
        [("  const std::span<const float> own", "  if (m == 1) return;\n  const std::span<const float> own")],
        "stage 0, .* micro-batch 1 is missing"),
    "sends no gradient back": (
        [(SEND_BACK, "")],
        r"P = 2, m = 1: deadlock \(rank s is stage s\): rank 0 waits in recv from stage 1 after F0"),
    "sends the gradient that it received": (
        [("stage.send(stage.stage() - 1, input_gradient)", "stage.send(stage.stage() - 1, gradient)")],
        "P = 2, m = 1: stage 0, backward of micro-batch 0: the gradient of the activation is wrong: its first value is"),
    "sends the activation back": (
        [("stage.send(stage.stage() - 1, input_gradient)", "stage.send(stage.stage() - 1, received_input)"),
         ("  const std::span<const float> input_gradient",
          "  const std::vector<float> received_input(stage.input(m).begin(), stage.input(m).end());\n"
          "  const std::span<const float> input_gradient")],
        "stage 0, backward of micro-batch 0: the gradient of the activation is wrong: it is the activation itself"),
    "receives nothing": (
        [(RECV, "")],
        "P = 2, m = 1: stage 1, forward of micro-batch 0: the input is wrong: it was not received"),
    "does not receive gradients": (
        [("    stage.recv(stage.stage() + 1, received);\n", "    ;\n")],
        "stage 0, backward of micro-batch 0: the gradient of the activation is wrong: it is zero: was it received"),
    "backward in the reverse order": (
        [("m < stage.micro_batches(); ++m) backward(stage, m);",
          "m < stage.micro_batches(); ++m) backward(stage, 2 * stage.micro_batches() - left - 1 - m);")],
        "P = 2, m = 2: stage 0, backward of micro-batch 1: the gradient of the activation is wrong: it is that of micro-batch 0"),
    "one micro-batch after another": (
        [("const std::size_t ahead = stage.stages() - stage.stage();", "const std::size_t ahead = 1;")],
        r"P = 4, m = 8: a step takes 96\.\d\d ms; with \(m \+ P - 1\)\(f \+ b\) it takes 33\.00 ms. Stage 0 waits between its passes: F0 B0 F1 B1"),
    "gpipe": (
        [("const std::size_t ahead = stage.stages() - stage.stage();", "const std::size_t ahead = stage.micro_batches();")],
        "stage 0 keeps the inputs of 8 micro-batches at once, after F0 F1 F2 F3 F4 F5 F6; P - s = 4 are enough"),
    "one too many in flight": (
        [("const std::size_t ahead = stage.stages() - stage.stage();", "const std::size_t ahead = stage.stages() - stage.stage() + 1;")],
        "stage 0 keeps the inputs of 5 micro-batches at once, after F0 F1 F2 F3; P - s = 4 are enough"),
    "leaves out the last backward": (
        [("m < stage.micro_batches(); ++m) backward(stage, m);", "m + 1 < stage.micro_batches(); ++m) backward(stage, m);")],
        "P = 1, m = 1: stage 0 has not run backward of micro-batch 0; its passes were: F0"),
    "sends forward to itself": (
        [("stage.send(stage.stage() + 1, activation)", "stage.send(stage.stage(), activation)")],
        "send to stage 0: the other stages of 2 are 0 to 1 without 0"),
    "loss gradient at the first stage": (
        [("  if (stage.stage() + 1 < stage.stages())\n    stage.recv", "  if (stage.stage() > 0)\n    stage.recv")],
        r"P = 2, m = 1: rank 0: loss_gradient\(0\): the last stage, 1, has the loss; stage 0 receives its gradient"),
    "loss gradient of the wrong micro-batch": (
        [("gradient = stage.loss_gradient(m);", "gradient = stage.loss_gradient(m / 2 * 2);")],
        r"P = 1, m = 3: rank 0: loss_gradient\(0\): call it between forward\(0\) and backward\(0\)"),
}
