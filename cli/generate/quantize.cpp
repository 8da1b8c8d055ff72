// psring quantize: a GPT's weights in 8 or 4 bits, as a file.
#include <filesystem>
#include <memory>
#include <string>

#include <psring/cli/commands.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/worker/model/generate/generator.h>

namespace psring::cli {

Command add_quantize(const Flags& program) {
  const Flags command = program.add_command("quantize", "round a GPT's weights to 8 or 4 bits");
  struct QuantizeFlags {
    worker::Generator::Options options;
    std::string out;
  };
  auto flags = std::make_shared<QuantizeFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--init", flags->options.file, "safetensors file of the weights").show_value("FILE").require();
  command.add("--weights", flags->options.weights, "int8, or int4:group=64,scheme=symmetric|affine").require();
  command.add("--model", flags->options.model, "the model, if the file's folder and tensors do not tell");
  command.add("--out", flags->out, "file to write").show_value("FILE").require();
  return [flags](const Invocation&) {
    const worker::Generator generator(flags->options);
    generator.save(flags->out);
    const auto mib = [](const std::string& path) {
      return static_cast<double>(std::filesystem::file_size(path)) / (1 << 20);
    };
    out::print("{}: {} weights, {:.2f} MiB; {} has {:.2f} MiB\n", flags->out, generator.weights().text(),
               mib(flags->out), flags->options.file, mib(flags->options.file));
    return 0;
  };
}

}  // namespace psring::cli
