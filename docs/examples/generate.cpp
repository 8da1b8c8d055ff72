// A program that lets a trained GPT of bytes continue a text:
//   ./generate runs/kjv/model.safetensors "And God said"
#include <cstdio>
#include <exception>
#include <string>

#include <psring/worker/model/generate/generator.h>

using psring::worker::Generator;
using psring::worker::Tokens;

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: generate MODEL.safetensors TEXT\n"), 2;
  try {
    Generator generator({.file = argv[1], .weights = "int8"});
    const std::string text = argv[2];
    Tokens prompt;
    for (const char c : text) prompt.push_back(static_cast<unsigned char>(c));
    std::printf("%s", argv[2]);
    const auto made = generator.generate({&prompt, 1}, {.tokens = 20}, [](std::size_t, std::uint32_t token) {
      std::putchar(static_cast<int>(token));
      std::fflush(stdout);
    });
    std::printf("\n%zu tokens, %zu bytes of cache\n", made.new_tokens, made.cache_bytes);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
