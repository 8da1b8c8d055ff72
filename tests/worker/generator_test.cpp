// Generation: the same tokens with and without a cache, alone and in a batch, on any number of threads; logits as
// PyTorch computes them; quantised files; errors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/layout.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/tests/support/shm_groups.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/model/generate/generator.h>
#include <psring/worker/model/generate/gpt_decoder.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/gpt.h>

using namespace psring;
using namespace psring::worker;

namespace {

namespace fs = std::filesystem;

using Folder = test::TemporaryFolder;

/// Writes a GPT whose weights are larger than initial ones, so that its logits differ clearly.
std::string write_model(const Folder& folder, const std::string& text, const std::string& name = "model.safetensors") {
  const Model model = make_gpt(Spec::parse("--model", text));
  std::vector<TensorSpec> specs;
  std::set<std::string> seen;
  for (const auto& layer : model.layers)
    for (const TensorSpec& spec : layer->tensors())
      if (seen.insert(spec.name).second) specs.push_back(spec);
  TensorWriter writer(folder.file(name), specs);
  for (std::uint32_t id = 0; id < specs.size(); ++id) {
    const CounterRng rng({.seed = 11, .tensor = id});
    std::vector<float> values(specs[id].elements());
    const bool norm = specs[id].name.find("ln_") != std::string::npos && specs[id].name.ends_with("weight");
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = (norm ? 1.0F : 0.0F) + 0.1F * rng.normal(i);
    writer.append(values);
  }
  writer.commit();
  return folder.file(name);
}

Tokens random_tokens(std::size_t n, std::size_t vocab, std::uint32_t stream) {
  const CounterRng rng({.seed = 7, .tensor = stream});
  Tokens tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<std::uint32_t>(rng.bits(i) % vocab);
  return tokens;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK((error.kind() == ErrorKind::usage || error.kind() == ErrorKind::data));
    return error.what();
  }
  FAIL("no error");
  return "";
}

/// Runs body(rank, generator) at each rank of a group that divides the model; ranks are threads.
void for_ranks(std::size_t ranks, const Generator::Options& options,
               const std::function<void(std::size_t, Generator&)>& body) {
  auto groups = ring::make_shm_groups(ranks, ring::kShmArenaBytes + Generator::exchange_bytes(options), {});
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Generator::Options own = options;
      own.group = groups[r].get();
      Generator generator(own);
      body(r, generator);
    });
}

constexpr const char* kModel = "gpt:layers=2,dim=48,heads=3,context=200,vocab=97";

}  // namespace

TEST_CASE("greedy tokens are the same with and without a cache, alone and batched, on any number of threads") {
  const Folder folder;
  for (const char* model :
       {kModel, "gpt:layers=1,dim=20,heads=4,context=64,vocab=7", "gpt:layers=3,dim=128,heads=2,context=192,vocab=256"})
    for (const char* weights : {"f32", "int8", "int4:group=32", "int4:group=64,scheme=affine"}) {
      INFO(model << " " << weights);
      const std::string file = write_model(folder, model);
      Generator generator({.file = file, .model = model, .weights = weights});
      Generator threads({.file = file, .model = model, .weights = weights, .threads = 3});
      const std::size_t vocab = generator.shape().vocab;
      const std::vector<Tokens> prompts{random_tokens(1, vocab, 1), random_tokens(17, vocab, 2),
                                        random_tokens(generator.shape().context - 40, vocab, 3),
                                        random_tokens(2, vocab, 4)};
      const Generated batched = generator.generate(prompts, {.tokens = 40});
      CHECK(batched.new_tokens == 160);
      CHECK(batched.steps == 39);
      CHECK(generator.generate(prompts, {.tokens = 40, .cache = false}).sequences == batched.sequences);
      CHECK(threads.generate(prompts, {.tokens = 40}).sequences == batched.sequences);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        CHECK(generator.generate({&prompts[i], 1}, {.tokens = 40}).sequences[0] == batched.sequences[i]);
        CHECK(threads.generate({&prompts[i], 1}, {.tokens = 40, .cache = false}).sequences[0] == batched.sequences[i]);
      }
    }
}

TEST_CASE("a decoded token is bitwise identical to a prefilled one, with each instruction set") {
  const Folder folder;
  const TensorFile file(write_model(folder, kModel));
  const GptShape shape = find_gpt_shape(file, kModel);
  const Tokens tokens = random_tokens(150, shape.vocab, 5);
  MemoryLedger memory;
  const GptWeights weights(file, shape, {}, memory);
  std::vector<std::vector<float>> all;
  for (const PanelKernels* kernels : {&panel_kernels(), slower_panel_kernels()}) {
    if (kernels == nullptr) continue;
    GptDecoder decoder(weights, 1, memory, *kernels);
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{150}}) {
      const std::size_t length = tokens.size();
      KvCache cache(shape, {&length, 1}, memory);
      std::vector<float> logits;
      for (std::size_t begin = 0; begin < length; begin += step) {
        std::vector<DecoderRow> rows;
        for (std::size_t p = begin; p < std::min(length, begin + step); ++p)
          rows.push_back({.token = tokens[p], .position = static_cast<std::uint32_t>(p), .logits = true});
        for (const auto& row : decoder.run(rows, cache)) logits.insert(logits.end(), row.begin(), row.end());
      }
      all.push_back(std::move(logits));
    }
  }
  for (const auto& logits : all) CHECK(logits == all.front());
}

TEST_CASE("ranks that divide the model are bitwise identical to one process") {
  const Folder folder;
  for (const char* model :
       {"gpt:layers=2,dim=48,heads=12,context=200,vocab=97", "gpt:layers=1,dim=24,heads=12,context=64,vocab=7",
        "gpt:layers=2,dim=768,heads=12,context=192,vocab=256"})
    for (const char* weights : {"f32", "int8", "int4:group=32", "int4:group=64,scheme=affine"}) {
      const std::string file = write_model(folder, model);
      Generator whole({.file = file, .model = model, .weights = weights});
      const std::size_t vocab = whole.shape().vocab;
      const std::size_t context = whole.shape().context;
      const std::vector<Tokens> prompts{random_tokens(1, vocab, 1), random_tokens(17, vocab, 2),
                                        random_tokens(context - 9, vocab, 3), random_tokens(2, vocab, 4)};
      const Tokens text = random_tokens(context, vocab, 5);
      const GenerateOptions greedy{.tokens = 10};
      const GenerateOptions drawn{.tokens = 10, .sampling = {.temperature = 1.5, .top_k = 20, .top_p = 0.9, .seed = 3}};
      const std::vector<float> logits = whole.logits(text);
      const auto greedy_tokens = whole.generate(prompts, greedy).sequences;
      const auto drawn_tokens = whole.generate(prompts, drawn).sequences;
      const double loss = whole.loss(text, text).loss_sum;
      for (const std::size_t ranks : {2, 3, 4}) {
        INFO(model << " " << weights << " among " << ranks);
        std::vector<int> same(ranks);
        for_ranks(ranks, {.file = file, .model = model, .weights = weights, .threads = ranks == 2 ? 2U : 1U},
                  [&](std::size_t r, Generator& generator) {
                    bool equal = generator.logits(text) == logits && generator.loss(text, text).loss_sum == loss &&
                                 generator.generate(prompts, greedy).sequences == greedy_tokens &&
                                 generator.generate(prompts, drawn).sequences == drawn_tokens;
                    for (std::size_t i = 0; i < prompts.size(); ++i) {
                      const auto alone = generator.generate({&prompts[i], 1}, {.tokens = 10, .cache = i % 2 == 0});
                      equal = equal && alone.sequences[0] == greedy_tokens[i];
                    }
                    same[r] = equal ? 1 : 0;
                  });
        CHECK(same == std::vector<int>(ranks, 1));
      }
    }
}

TEST_CASE("a quantised file is divided as it is") {
  const Folder folder;
  const std::string model = "gpt:layers=1,dim=70,heads=10,context=32,vocab=97";
  const std::string file = write_model(folder, model);
  const Tokens tokens = random_tokens(32, 97, 9);
  for (const char* weights : {"int8", "int4:group=32,scheme=symmetric", "int4:group=32,scheme=affine"}) {
    Generator whole({.file = file, .model = model, .weights = weights});
    const std::string saved = folder.file("quantised.safetensors");
    whole.save(saved);
    const std::vector<float> logits = whole.logits(tokens);
    std::vector<int> same(5);
    for_ranks(5, {.file = saved},
              [&](std::size_t r, Generator& generator) { same[r] = generator.logits(tokens) == logits ? 1 : 0; });
    CHECK(same == std::vector<int>(5, 1));
  }
}

TEST_CASE("a rank's memory and bytes are the formulas'") {
  const Folder folder;
  const std::string model = "gpt:layers=2,dim=48,heads=12,context=200,vocab=97";
  const std::string file = write_model(folder, model);
  const std::vector<Tokens> prompts{random_tokens(5, 97, 1), random_tokens(50, 97, 2)};
  for (const char* weights : {"f32", "int8", "int4:group=32,scheme=affine"}) {
    std::size_t one = Generator({.file = file, .model = model, .weights = weights}).weight_bytes();
    std::vector<std::size_t> bytes(4);
    for_ranks(4, {.file = file, .model = model, .weights = weights}, [&](std::size_t r, Generator& generator) {
      const Generated made = generator.generate(prompts, {.tokens = 30});
      const GptShape& shape = generator.shape();
      bytes[r] = generator.weight_bytes();
      // 2 L T d bytes: 5 + 29 and 50 + 29 tokens, in whole sixteens; 3 of 12 heads of 4.
      if (made.cache_bytes != 2 * 2 * (48 + 80) * 12 * 4 ||
          bytes[r] != weight_bytes(shape, generator.weights(), generator.part()) || made.rows != 55 + 2 * 29 ||
          made.logits != 60 ||
          made.received_bytes != received_bytes(shape, generator.part(), made.rows, made.logits, made.others))
        bytes[r] = 0;
    });
    for (const std::size_t part : bytes) {
      CHECK(part > 0);
      CHECK(part < one);
    }
  }
  const Tokens tokens = random_tokens(150, 97, 5);
  auto groups = ring::make_shm_groups(2, ring::kShmArenaBytes + (std::size_t{1} << 20), {});
  std::vector<int> same(2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        const SystemClock clock;
        MemoryLedger memory;
        MemoryLedger others;
        const TensorFile tensors(file);
        const GptWeights weights(tensors, find_gpt_shape(tensors, model), WeightFormat::parse("", "int4:scheme=affine"),
                                 others, TensorPart(r, 2));
        weights.part().connect(
            *groups[r], clock,
            Buffer(GptDecoder::exchange_bytes(weights.shape()), Category::communication, others, groups[r]->arena()));
        GptDecoder decoder(weights, 1, memory);
        const std::size_t length = tokens.size();
        KvCache cache(weights.shape(), {&length, 1}, others, weights.part());
        std::vector<DecoderRow> rows;
        for (std::size_t p = 0; p < length; ++p)
          rows.push_back({.token = tokens[p], .position = static_cast<std::uint32_t>(p), .logits = true});
        decoder.run(rows, cache);
        same[r] = memory.current_bytes() == decoder.scratch_bytes(length, length) ? 1 : 0;
      });
  }
  CHECK(same == std::vector<int>(2, 1));
}

TEST_CASE("a model that cannot be divided is refused in one line") {
  const GptShape shape{.layers = 1, .dim = 48, .heads = 12, .context = 8, .vocab = 3};
  CHECK(message_of([&] { cut_gpt(shape, TensorPart(0, 5)); }) ==
        "--tensor 5: 12 heads of attention are not divisible by 5");
  CHECK(message_of([&] { cut_gpt(shape, TensorPart(0, 4)); }) ==
        "--tensor 4: a vocabulary of 3 has no token for each part");
}

TEST_CASE("logits agree with PyTorch") {
  const Folder folder;
  for (const char* model : {kModel, "gpt:layers=3,dim=128,heads=2,context=192,vocab=256",
                            "gpt:layers=1,dim=20,heads=4,context=64,vocab=7"}) {
    const std::string file = write_model(folder, model);
    Generator generator({.file = file, .model = model});
    const GptShape& shape = generator.shape();
    const Tokens tokens = random_tokens(shape.context, shape.vocab, 6);
    const std::string out = folder.file("logits");
    const std::string command = fmt::format("/usr/bin/python3 '{}' '{}' {} {} '{}'", PSRING_GPT_LOGITS, file,
                                            shape.heads, fmt::join(tokens, ","), out);
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
      std::puts("SKIPPED: /usr/bin/python3 with PyTorch or NumPy is not there");
      std::fflush(stdout);
      return;
    }
    REQUIRE(status == 0);
    const std::vector<float> logits = generator.logits(tokens);
    std::vector<float> expected(logits.size());
    std::ifstream in(out, std::ios::binary);
    in.read(reinterpret_cast<char*>(expected.data()), static_cast<std::streamsize>(expected.size() * sizeof(float)));
    REQUIRE(in);
    float most = 0;
    float largest = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      most = std::max(most, std::abs(logits[i] - expected[i]));
      largest = std::max(largest, std::abs(expected[i]));
    }
    INFO(model << ": differ by up to " << most << ", the largest is " << largest);
    CHECK(largest > 1);
    CHECK(most < 1e-4F);
  }
}

TEST_CASE("the loss is the model's own, and quantising changes it little") {
  const Folder folder;
  const std::string file = write_model(folder, kModel);
  Generator generator({.file = file, .model = kModel});
  const Tokens tokens = random_tokens(201, 97, 8);
  const Tokens inputs(tokens.begin(), tokens.end() - 1);
  const Tokens targets(tokens.begin() + 1, tokens.end());
  const std::vector<float> logits = generator.logits(inputs);
  double expected = 0;
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    double sum = 0;
    for (std::size_t j = 0; j < 97; ++j) sum += std::exp(static_cast<double>(logits[p * 97 + j]));
    expected += std::log(sum) - static_cast<double>(logits[p * 97 + targets[p]]);
  }
  const TextLoss loss = generator.loss(inputs, targets);
  CHECK(loss.tokens == 200);
  CHECK(loss.loss_sum == Approx(expected).epsilon(1e-6));
  CHECK(loss.perplexity() == Approx(std::exp(expected / 200)).epsilon(1e-6));
  const double f32 = loss.mean();
  CHECK(Generator({.file = file, .model = kModel, .weights = "int8"}).loss(inputs, targets).mean() ==
        Approx(f32).epsilon(0.01));
  CHECK(Generator({.file = file, .model = kModel, .weights = "int4:group=32"}).loss(inputs, targets).mean() ==
        Approx(f32).epsilon(0.1));
}

TEST_CASE("a quantised file is bitwise identical to quantising on load, and knows its model") {
  const Folder folder;
  const std::string file = write_model(folder, kModel);
  const Tokens tokens = random_tokens(100, 97, 9);
  for (const char* weights : {"int8", "int4:group=64,scheme=symmetric", "int4:group=32,scheme=affine"}) {
    INFO(weights);
    Generator loaded({.file = file, .model = kModel, .weights = weights});
    const std::string saved = folder.file("quantised.safetensors");
    loaded.save(saved);
    Generator again({.file = saved});
    CHECK(again.weights().text() == weights);
    CHECK(again.logits(tokens) == loaded.logits(tokens));
    CHECK(fs::file_size(saved) < fs::file_size(file) / 2);
    CHECK(message_of([&] { Generator({.file = saved, .weights = "int4:group=128"}); }).find("already") !=
          std::string::npos);
  }
  CHECK_THROWS_AS(Generator({.file = file, .model = kModel}).save(folder.file("x")), Error);
}

TEST_CASE("booked memory is the formulas'") {
  const Folder folder;
  const std::string file = write_model(folder, kModel);
  for (const char* weights : {"f32", "int8", "int4", "int4:group=128,scheme=affine"}) {
    Generator generator({.file = file, .model = kModel, .weights = weights});
    CHECK(generator.weight_bytes() == weight_bytes(generator.shape(), generator.weights()));
    const std::vector<Tokens> prompts{random_tokens(5, 97, 1), random_tokens(50, 97, 2)};
    const Generated made = generator.generate(prompts, {.tokens = 30});
    // 2 L T d bytes: 5 + 29 and 50 + 29 tokens, in whole sixteens.
    CHECK(made.cache_bytes == 2 * 2 * (48 + 80) * 48 * 4);
  }
  const GptShape gpt2{.layers = 12, .dim = 768, .heads = 12, .context = 1024, .vocab = 50257};
  CHECK(parameter_count(gpt2) == 124439808);  // as published
}

TEST_CASE("prompts that cannot be continued are refused in one line") {
  const Folder folder;
  Generator generator({.file = write_model(folder, kModel), .model = kModel});
  const auto error = [&](const Tokens& prompt, std::size_t tokens) {
    return message_of([&] { generator.generate({&prompt, 1}, {.tokens = tokens}); });
  };
  CHECK(error({}, 1) == "prompt 0 is empty: the model needs at least one token to continue");
  CHECK(error({1, 97}, 1) == "prompt 0: token 97 at position 1 is not one of the model's vocabulary of 97");
  CHECK(error(random_tokens(201, 97, 1), 1) == "prompt 0 has 201 tokens, but the model's context is 200");
  CHECK(error(random_tokens(10, 97, 1), 192) ==
        "192 new tokens do not fit after prompt 0, which has 10: with a context of 200, at most 191 fit");
  const Tokens prompt = random_tokens(10, 97, 1);
  CHECK(generator.generate({&prompt, 1}, {.tokens = 191}).sequences[0].size() == 191);  // the whole context
  const Tokens full = random_tokens(200, 97, 1);
  CHECK(generator.generate({&full, 1}, {.tokens = 1}).sequences[0].size() == 1);
}

TEST_CASE("a sequence ends at the stop token, the others go on") {
  const Folder folder;
  Generator generator({.file = write_model(folder, kModel), .model = kModel});
  const std::vector<Tokens> prompts{random_tokens(5, 97, 1), random_tokens(9, 97, 2)};
  const Generated all = generator.generate(prompts, {.tokens = 30});
  const std::uint32_t stop = all.sequences[0][7];
  const Generated some = generator.generate(prompts, {.tokens = 30, .stop = stop});
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& sequence = all.sequences[i];
    CHECK(some.sequences[i] == Tokens(sequence.begin(), std::find(sequence.begin(), sequence.end(), stop)));
  }
}

TEST_CASE("the shape comes from --model, the run, config.json or the tensors") {
  const Folder folder;
  const std::string text = "gpt:layers=2,dim=128,heads=4,context=32,vocab=30";
  const TensorFile file(write_model(folder, text));
  CHECK(message_of([&] { find_gpt_shape(file, ""); }) ==
        file.path() +
            ": its tensors do not show the number of heads; give --model "
            "gpt:layers=2,dim=128,heads=N,context=32,vocab=30");
  CHECK(gpt_text(find_gpt_shape(file, text)) == text);
  std::ofstream(folder.file("config.json")) << R"({"n_head": 8, "n_embd": 128})";
  CHECK(find_gpt_shape(file, "").heads == 8);
  std::ofstream(folder.file("run.json")) << R"({"job": {"model": ")" << text << R"("}})";
  CHECK(find_gpt_shape(file, "").heads == 4);
  CHECK(message_of([&] { find_gpt_shape(file, "mlp:784-10"); }) == "--model mlp:784-10: only gpt generates text");
  const Folder other;
  const TensorFile small(write_model(other, kModel));
  CHECK(message_of([&] { Generator({.file = small.path(), .model = text}); }).find("has shape") != std::string::npos);
}

TEST_CASE("the shape of a file that psring wrote is in its metadata, and no other is taken") {
  const Folder folder;
  const std::string text = "gpt:layers=1,dim=16,heads=8,context=4,vocab=5";
  std::ofstream(folder.file("config.json")) << R"({"n_head": 2})";
  const auto write = [&](const std::string& model) {
    TensorWriter(folder.file("m"), std::vector<TensorSpec>{}, {{kModelKey, model}}).commit();
    return TensorFile(folder.file("m"));
  };
  const TensorFile file = write(text);
  CHECK(gpt_text(find_gpt_shape(file, "")) == text);
  CHECK(gpt_text(find_gpt_shape(file, "gpt:vocab=5,context=4,heads=8,dim=16,layers=1")) == text);
  const std::string other = "gpt:layers=1,dim=16,heads=4,context=4,vocab=5";
  CHECK(message_of([&] { find_gpt_shape(file, other); }) ==
        "--model " + other + ": " + file.path() + " holds a " + text);
  CHECK(message_of([&] { check_model_of_file(file, other); }) ==
        file.path() + ": holds a " + text + ", and --model is " + other);
  check_model_of_file(file, "gpt:vocab=5,context=4,heads=8,dim=16,layers=1");
  check_model_of_file(file, "mlp:4-2");  // its tensors say that it is another model
  CHECK(other_model_of_file(file, other) == text);
  CHECK_FALSE(other_model_of_file(file, text));
  CHECK(message_of([&] { find_gpt_shape(write("mlp:4-2"), ""); }).starts_with(folder.file("m") + ": --model mlp:4-2"));
  CHECK(message_of([&] { find_gpt_shape(write("gpt:heads=x"), ""); }).starts_with(folder.file("m") + ": "));
}

TEST_CASE("GPT-2's four sizes are known by their tensors") {
  for (const auto& [layers, dim, heads] : {std::tuple(12, 768, 12), {24, 1024, 16}, {36, 1280, 20}, {48, 1600, 25}}) {
    const Folder folder;
    std::string header = R"({"wte.weight":{"dtype":"U8","shape":[50257,)" + std::to_string(dim);
    const std::size_t tokens = std::size_t{50257} * static_cast<std::size_t>(dim);
    const std::size_t places = std::size_t{1024} * static_cast<std::size_t>(dim);
    header += fmt::format(R"(],"data_offsets":[0,{}]}},"wpe.weight":{{"dtype":"U8","shape":[1024,{}],)", tokens, dim);
    header += fmt::format(R"("data_offsets":[{},{}]}})", tokens, tokens + places);
    for (int i = 0; i < layers; ++i)
      header += fmt::format(R"(,"h.{}.ln_1.weight":{{"dtype":"U8","shape":[0],"data_offsets":[{},{}]}})", i,
                            tokens + places, tokens + places);
    header += "}";
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    test::write_file(folder.file("m"), bytes + header);
    fs::resize_file(folder.file("m"), 8 + header.size() + tokens + places);  // a hole
    const GptShape shape = find_gpt_shape(TensorFile(folder.file("m")), "");
    CHECK(shape.heads == static_cast<std::size_t>(heads));
    CHECK(shape.layers == static_cast<std::size_t>(layers));
  }
}

TEST_CASE("draws follow the probabilities, the seed, and the limits") {
  const std::vector<float> logits{1.0F, 2.0F, 0.0F, 2.0F, -1.0F};
  TokenSampler greedy({});
  CHECK(greedy.choose(logits, 0, 0) == 1);  // the first of the largest
  CHECK(TokenSampler({.temperature = 1, .top_k = 1}).choose(logits, 3, 4) == 1);
  CHECK(TokenSampler({.temperature = 1, .top_p = 1e-9}).choose(logits, 3, 4) == 1);

  const auto shares = [&](const Sampling& sampling) {
    TokenSampler sampler(sampling);
    std::vector<double> count(logits.size());
    constexpr std::size_t kDraws = 40000;
    for (std::size_t i = 0; i < kDraws; ++i) count[sampler.choose(logits, i % 7, i / 7)] += 1.0 / kDraws;
    return count;
  };
  const auto expect = [&](const Sampling& sampling, const std::vector<std::size_t>& allowed) {
    double total = 0;
    for (const std::size_t t : allowed) total += std::exp(static_cast<double>(logits[t]) / sampling.temperature);
    const std::vector<double> drawn = shares(sampling);
    for (std::size_t t = 0; t < logits.size(); ++t) {
      const bool in = std::find(allowed.begin(), allowed.end(), t) != allowed.end();
      const double p = in ? std::exp(static_cast<double>(logits[t]) / sampling.temperature) / total : 0;
      CHECK(std::abs(drawn[t] - p) <= 5 * std::sqrt(p * (1 - p) / 40000) + 1e-9);
    }
  };
  expect({.temperature = 1}, {0, 1, 2, 3, 4});
  expect({.temperature = 0.5}, {0, 1, 2, 3, 4});
  expect({.temperature = 2, .top_k = 3}, {0, 1, 3});
  expect({.temperature = 1, .top_p = 0.7}, {1, 3});  // e^2 / 18.9 = 0.39 each
  expect({.temperature = 1, .top_p = 0.8}, {0, 1, 3});
  expect({.temperature = 1, .top_k = 2, .top_p = 0.4}, {1});

  TokenSampler sampler({.temperature = 1, .seed = 5});
  CHECK(sampler.choose(logits, 1, 2) == TokenSampler({.temperature = 1, .seed = 5}).choose(logits, 1, 2));
}
