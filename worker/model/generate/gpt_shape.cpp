#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/gpt.h>

namespace psring::worker {
namespace {

namespace fs = std::filesystem;

/// The heads of GPT-2's four sizes, which their tensors do not show.
constexpr std::array<GptShape, 4> kPublished = {{
    {.layers = 12, .dim = 768, .heads = 12, .context = 1024, .vocab = 50257},
    {.layers = 24, .dim = 1024, .heads = 16, .context = 1024, .vocab = 50257},
    {.layers = 36, .dim = 1280, .heads = 20, .context = 1024, .vocab = 50257},
    {.layers = 48, .dim = 1600, .heads = 25, .context = 1024, .vocab = 50257},
}};
constexpr std::uint64_t kMostJsonBytes = std::uint64_t{16} << 20;

std::optional<Json> read_json(const fs::path& path) {
  const std::optional<std::string> text = read_whole_if_present(path, kMostJsonBytes);
  return text ? Json::try_parse(*text) : std::nullopt;
}

GptShape parse_model(const std::string& text) {
  const Spec spec = Spec::parse("--model", text);
  if (spec.name() != "gpt") fail(ErrorKind::usage, "--model {}: only gpt generates text", text);
  return parse_gpt(spec);
}

/// Parses the model that a file names. Throws data, naming the file.
GptShape parse_model_of(const std::string& file, const std::string& text) {
  try {
    return parse_model(text);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{}: {}", file, error.what());
  }
}

const TensorEntry* find_either(const TensorFile& file, const std::string& name) {
  const TensorEntry* plain = file.find(name);
  return plain != nullptr ? plain : file.find("transformer." + name);
}

/// The shape that the tensors show; heads is 0.
GptShape shape_of_tensors(const TensorFile& file) {
  const TensorEntry* tokens = find_either(file, "wte.weight");
  const TensorEntry* places = find_either(file, "wpe.weight");
  if (tokens == nullptr || places == nullptr || tokens->shape.size() != 2 || places->shape.size() != 2)
    fail(ErrorKind::data, "{}: has no tensors wte.weight and wpe.weight of two dimensions, so it is no GPT",
         file.path());
  GptShape shape{
      .layers = 0, .dim = places->shape[1], .heads = 0, .context = places->shape[0], .vocab = tokens->shape[0]};
  while (find_either(file, fmt::format("h.{}.ln_1.weight", shape.layers)) != nullptr) ++shape.layers;
  if (shape.layers == 0 || shape.dim == 0 || shape.context == 0 || shape.vocab == 0)
    fail(ErrorKind::data, "{}: has no block h.0 of a GPT, or empty tensors", file.path());
  return shape;
}

/// The --model of the run whose folder holds the file; nothing if the file does not lie in a run folder.
std::optional<std::string> model_of_run(const fs::path& folder) {
  const std::optional<Json> run = read_json(folder / "run.json");
  if (!run || !run->is_object() || !run->contains("job")) return std::nullopt;
  const Json& job = run->at("job");
  if (!job.is_object() || !job.contains("model") || !job.at("model").is_string()) return std::nullopt;
  return job.at("model").get<std::string>();
}

/// Returns 0 if the shape is not of a published GPT-2.
std::size_t heads_of_published(GptShape shape) {
  for (const GptShape& published : kPublished) {
    shape.heads = published.heads;
    if (shape == published) return shape.heads;
  }
  return 0;
}

std::size_t heads_of_config(const fs::path& folder) {
  const std::optional<Json> config = read_json(folder / "config.json");
  if (!config || !config->is_object() || !config->contains("n_head")) return 0;
  const Json& heads = config->at("n_head");
  return heads.is_number_unsigned() ? heads.get<std::size_t>() : 0;
}

}  // namespace

void check_model_of_file(const TensorFile& file, const std::string& model) {
  const std::optional<std::string> other = other_model_of_file(file, model);
  if (!other || Spec::parse("--model", model).name() != "gpt" || !other->starts_with("gpt")) return;
  if (const GptShape shape = parse_model_of(file.path(), *other); shape != parse_model(model))
    fail(ErrorKind::data, "{}: holds a {}, and --model is {}", file.path(), gpt_text(shape), model);
}

std::optional<std::string> other_model_of_file(const TensorFile& file, const std::string& model) {
  const auto kept = file.metadata().find(kModelKey);
  return kept == file.metadata().end() || kept->second == model ? std::nullopt : std::optional(kept->second);
}

std::string gpt_text(const GptShape& shape) {
  return fmt::format("gpt:layers={},dim={},heads={},context={},vocab={}", shape.layers, shape.dim, shape.heads,
                     shape.context, shape.vocab);
}

WeightFormat stored_format(const TensorFile& file) {
  const auto found = file.metadata().find(kWeightsKey);
  if (found == file.metadata().end()) return {};
  try {
    return WeightFormat::parse(kWeightsKey, found->second);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{}: {}", file.path(), error.what());
  }
}

GptShape find_gpt_shape(const TensorFile& file, const std::string& model) {
  if (const auto kept = file.metadata().find(kModelKey); kept != file.metadata().end()) {
    const GptShape shape = parse_model_of(file.path(), kept->second);
    if (!model.empty() && parse_model(model) != shape)
      fail(ErrorKind::usage, "--model {}: {} holds a {}", model, file.path(), gpt_text(shape));
    return shape;
  }
  if (!model.empty()) return parse_model(model);
  const fs::path folder = fs::path(file.path()).parent_path();
  if (const std::optional<std::string> text = model_of_run(folder))
    return parse_model_of((folder / "run.json").string(), *text);
  GptShape shape = shape_of_tensors(file);
  shape.heads = heads_of_config(folder);
  if (shape.heads == 0) shape.heads = heads_of_published(shape);
  if (shape.heads == 0 || shape.dim % shape.heads != 0)
    fail(ErrorKind::usage,
         "{}: its tensors do not show the number of heads; give --model "
         "gpt:layers={},dim={},heads=N,context={},vocab={}",
         file.path(), shape.layers, shape.dim, shape.context, shape.vocab);
  return shape;
}

}  // namespace psring::worker
