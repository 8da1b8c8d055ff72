"""Wrong solutions of exercise 10: changes to the reference solution, and the words that have to point to the cause."""

CLAMP = """    const long code = std::lround(value / block.scale) + block.zero_point;
    block.codes.push_back(static_cast<std::uint8_t>(std::clamp(code, 0L, 255L)));
"""

WRONG = {
    "cuts off instead of rounding": (
        [("std::lround(value / block.scale)", "static_cast<long>(value / block.scale)")],
        "round to the nearest code, not downwards"),
    "a range without 0": (
        [("float low = 0;", "float low = values[0];"), ("float high = 0;", "float high = values[0];")],
        "values from 2 to 5: .* the range has to contain 0"),
    "256 steps": (
        [("/ 255", "/ 256")],
        "the scale is not width / 255: 256 codes have 255 steps"),
    "127 steps": (
        [("/ 255", "/ 127")],
        "the scale is not width / 255"),
    "no clamp": (
        [("static_cast<std::uint8_t>(std::clamp(code, 0L, 255L))", "static_cast<std::uint8_t>(code)")],
        "values from -127.5 to 127.5: .* a code that leaves 0 to 255 wraps around: clamp it"),
    "no scale for equal values": (
        [("high > low ? (high - low) / 255 : 1.0F", "(high - low) / 255")],
        "the scale of values from 0 to 0 is 0; it has to be finite and above 0"),
    "the inverse of the scale": (
        [("block.scale * static_cast<float>(", "1 / block.scale * static_cast<float>(")],
        r"dequantize did not return scale \* \(code - zero point\)"),
    "the zero point is forgotten in decoding": (
        [("(block.codes[i] - block.zero_point)", "(block.codes[i])")],
        r"dequantize did not return scale \* \(code - zero point\)"),
    "the zero point is the code of the largest value": (
        [("std::lround(-low / block.scale)", "std::lround(high / block.scale)")],
        "a code that leaves 0 to 255 wraps around|round to the nearest"),
    "the last value is left out": (
        [("  for (const float value : values) {\n    const long", "  for (const float value : values.first(values.size() - 1)) {\n    const long")],
        "quantize of 300 values made 299 codes"),
    "decoding leaves out the last value": (
        [("i < values.size()", "i + 1 < values.size()")],
        "element 299, byte 299: .* dequantize has not written it"),
    "the extremes are averages": (
        [("low = std::min(low, value);", "low += value / static_cast<float>(values.size());")],
        "the scale is not width / 255"),
    "0 has another code than the zero point": (
        [("block.codes.push_back(static_cast<std::uint8_t>(std::clamp(code, 0L, 255L)))",
          "block.codes.push_back(static_cast<std::uint8_t>(std::clamp(value == 0 ? code + 1 : code, 0L, 255L)))")],
        "0 comes back as .*; the zero point has to be a code"),
}
