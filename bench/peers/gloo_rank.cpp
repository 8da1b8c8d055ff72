/// psring-bench-gloo: a rank of gloo over its TCP transport. Its arguments are the benchmark's address, the bytes of
/// the largest vector, its rank, and a folder through which the ranks meet. Vectors are allocated with malloc.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <psring/bench/peers/rank.h>

namespace psring::bench {
namespace {

using Redop = ring::ReduceOp::Kind;

constexpr std::chrono::minutes kPatience{10};

std::shared_ptr<gloo::Context> connect(const RankLink& link, const std::string& folder) {
  std::filesystem::create_directories(folder);
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr attr;
  attr.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto context =
      std::make_shared<gloo::rendezvous::Context>(static_cast<int>(link.rank()), static_cast<int>(link.ranks()));
  context->setTimeout(kPatience);
  context->connectFullMesh(store, device);
  return context;
}

bool is_power_of_two(std::size_t number) { return (number & (number - 1)) == 0; }

/// Makes calls for elements of one type.
template <class T>
class Typed {
 public:
  Typed(std::shared_ptr<gloo::Context> context, const CollectiveCall& call, std::byte* a, std::byte* b)
      : context_(std::move(context)), call_(call), a_(reinterpret_cast<T*>(a)), b_(reinterpret_cast<T*>(b)) {}

  PreparedCall all_reduce(const std::string& way) {
    const auto count = static_cast<int>(call_.count);
    const std::vector<T*> vectors{a_};
    if (way == "ring") return in_place<gloo::AllreduceRing<T>>(vectors, count);
    if (way == "ring chunked") return in_place<gloo::AllreduceRingChunked<T>>(vectors, count);
    if (way == "halving-doubling") return in_place<gloo::AllreduceHalvingDoubling<T>>(vectors, count);
    if (way == "bcube") return in_place<gloo::AllreduceBcube<T>>(vectors, count);
    const auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    options->setAlgorithm(way == "ring, options" ? gloo::AllreduceOptions::Algorithm::RING
                                                 : gloo::AllreduceOptions::Algorithm::BCUBE);
    options->setOutput(a_, call_.count);
    options->setReduceFunction(function());
    return {bytes(a_), bytes(a_), [options] { gloo::allreduce(*options); }, ""};
  }

  PreparedCall other() {
    const auto root = static_cast<int>(call_.root);
    switch (call_.kind) {
      case CollectiveKind::all_gather: {
        const auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        options->setInput(a_, call_.part());
        options->setOutput(b_, call_.count);
        return {bytes(a_), bytes(b_), [options] { gloo::allgather(*options); }, ""};
      }
      case CollectiveKind::broadcast: {
        const auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        options->setOutput(a_, call_.count);
        options->setRoot(root);
        return {bytes(a_), bytes(a_), [options] { gloo::broadcast(*options); }, ""};
      }
      case CollectiveKind::reduce: {
        const auto options = std::make_shared<gloo::ReduceOptions>(context_);
        options->setInput(a_, call_.count);
        options->setOutput(b_, call_.count);
        options->setRoot(root);
        options->setReduceFunction(function());
        return {bytes(a_), bytes(b_), [options] { gloo::reduce(*options); }, ""};
      }
      case CollectiveKind::gather: {
        const auto options = std::make_shared<gloo::GatherOptions>(context_);
        options->setInput(a_, call_.part());
        if (call_.at_root()) options->setOutput(b_, call_.count);
        options->setRoot(root);
        return {bytes(a_), bytes(b_), [options] { gloo::gather(*options); }, ""};
      }
      case CollectiveKind::scatter: {
        const auto options = std::make_shared<gloo::ScatterOptions>(context_);
        std::vector<T*> parts;
        for (std::size_t r = 0; r < call_.ranks; ++r) parts.push_back(a_ + r * call_.part());
        if (call_.at_root()) options->setInputs(parts, call_.part());
        options->setOutput(b_, call_.part());
        options->setRoot(root);
        return {bytes(a_), bytes(b_), [options] { gloo::scatter(*options); }, ""};
      }
      default: {
        const auto options = std::make_shared<gloo::AlltoallOptions>(context_);
        options->setInput(a_, call_.count);
        options->setOutput(b_, call_.count);
        return {bytes(a_), bytes(b_), [options] { gloo::alltoall(*options); }, ""};
      }
    }
  }

 private:
  template <class Algorithm>
  PreparedCall in_place(const std::vector<T*>& vectors, int count) {
    const auto algorithm = std::make_shared<Algorithm>(context_, vectors, count, reduction());
    return {bytes(a_), bytes(a_), [algorithm] { algorithm->run(); }, ""};
  }

  const gloo::ReductionFunction<T>* reduction() const {
    switch (call_.redop) {
      case Redop::product:
        return gloo::ReductionFunction<T>::product;
      case Redop::min:
        return gloo::ReductionFunction<T>::min;
      case Redop::max:
        return gloo::ReductionFunction<T>::max;
      default:
        return gloo::ReductionFunction<T>::sum;
    }
  }

  using Function = void (*)(void*, const void*, const void*, std::size_t);
  Function function() const {
    switch (call_.redop) {
      case Redop::product:
        return &gloo::product<T>;
      case Redop::min:
        return &gloo::min<T>;
      case Redop::max:
        return &gloo::max<T>;
      default:
        return &gloo::sum<T>;
    }
  }

  static std::byte* bytes(T* vector) { return reinterpret_cast<std::byte*>(vector); }

  std::shared_ptr<gloo::Context> context_;
  const CollectiveCall call_;
  T* a_;
  T* b_;
};

class GlooRank final : public RankLibrary {
 public:
  GlooRank(std::shared_ptr<gloo::Context> context, std::size_t max_bytes)
      : context_(std::move(context)), a_(max_bytes), b_(max_bytes) {}

  std::vector<std::string> ways(const CollectiveCall& call) override {
    const bool reduced = call.redop == Redop::sum || call.redop == Redop::product || call.redop == Redop::min ||
                         call.redop == Redop::max;
    if ((reduces(call.kind) && !reduced) || call.dtype == DType::bf16 || call.dtype == DType::f16 ||
        call.count > std::numeric_limits<int>::max())
      return {};
    if (call.kind == CollectiveKind::sendrecv || call.kind == CollectiveKind::reduce_scatter) return {};
    if (call.kind != CollectiveKind::all_reduce) return {"-"};
    std::vector<std::string> ways{"ring", "ring chunked", "halving-doubling"};
    if (is_power_of_two(call.ranks)) ways.emplace_back("bcube");
    // With more ranks, these algorithms of Debian's gloo sometimes deadlock from some MiB on.
    if (call.ranks <= 2) ways.insert(ways.end(), {"ring, options", "bcube, options"});
    return ways;
  }

  PreparedCall prepare(const CollectiveCall& call, std::size_t way) override {
    switch (call.dtype) {
      case DType::f32:
        return prepare_typed<float>(call, way);
      case DType::f64:
        return prepare_typed<double>(call, way);
      case DType::i8:
        return prepare_typed<std::int8_t>(call, way);
      case DType::u8:
        return prepare_typed<std::uint8_t>(call, way);
      case DType::i32:
        return prepare_typed<std::int32_t>(call, way);
      case DType::i64:
        return prepare_typed<std::int64_t>(call, way);
      default:
        fail(ErrorKind::bug, "gloo does not support this type");
    }
  }

 private:
  template <class T>
  PreparedCall prepare_typed(const CollectiveCall& call, std::size_t way) {
    Typed<T> typed(context_, call, a_.data(), b_.data());
    return call.kind == CollectiveKind::all_reduce ? typed.all_reduce(ways(call).at(way)) : typed.other();
  }

  std::shared_ptr<gloo::Context> context_;
  PlainVector a_;
  PlainVector b_;
};

int run(const std::string& control, std::size_t max_bytes, std::size_t rank, const std::string& folder) {
  RankLink link(control, rank);
  return run_rank(link, [&] {
    GlooRank library(connect(link, folder), max_bytes);
    link.ready();
    serve_rank(link, library);
  });
}

}  // namespace
}  // namespace psring::bench

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("psring: a part of psring-bench, which starts it\n", stderr);
    return psring::exit_status(psring::ErrorKind::usage);
  }
  try {
    return psring::bench::run(argv[1], std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10),
                              argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "psring: %s\n", error.what());
    return psring::exit_status(psring::ErrorKind::peer_lost);
  }
}
