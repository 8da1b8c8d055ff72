/// psring-bench-openmpi and psring-bench-mpich: a rank of MPI, started by the library's own launcher. Its arguments are
/// the benchmark's address and the bytes of the largest vector. Vectors are allocated with malloc.
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <mpi.h>

#include <psring/bench/peers/rank.h>

namespace psring::bench {
namespace {

MPI_Datatype datatype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i8:
      return MPI_INT8_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    default:
      return MPI_DATATYPE_NULL;  // MPI has no 16-bit floats
  }
}

MPI_Op operation(ring::ReduceOp::Kind redop) {
  using Redop = ring::ReduceOp::Kind;
  switch (redop) {
    case Redop::sum:
      return MPI_SUM;
    case Redop::product:
      return MPI_PROD;
    case Redop::min:
      return MPI_MIN;
    case Redop::max:
      return MPI_MAX;
    case Redop::logical_and:
      return MPI_LAND;
    case Redop::logical_or:
      return MPI_LOR;
    case Redop::logical_xor:
      return MPI_LXOR;
    case Redop::bit_and:
      return MPI_BAND;
    case Redop::bit_or:
      return MPI_BOR;
    case Redop::bit_xor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;  // MPI has no mean
  }
}

class MpiRank final : public RankLibrary {
 public:
  explicit MpiRank(std::size_t max_bytes) : a_(max_bytes), b_(max_bytes) {}

  std::vector<std::string> ways(const CollectiveCall& call) override {
    if (datatype(call.dtype) == MPI_DATATYPE_NULL || call.count > std::numeric_limits<int>::max()) return {};
    if (reduces(call.kind) && operation(call.redop) == MPI_OP_NULL) return {};
    // Not reduce: MPICH 4.0 crashes with MPI_IN_PLACE at a root other than 0.
    const bool both = call.kind == CollectiveKind::all_reduce || call.kind == CollectiveKind::reduce_scatter ||
                      call.kind == CollectiveKind::all_gather;
    if (both) return {"in place", "two vectors"};
    return {"-"};
  }

  PreparedCall prepare(const CollectiveCall& call, std::size_t way) override {
    MPI_Datatype type = datatype(call.dtype);
    MPI_Op op = operation(call.redop);
    const auto count = static_cast<int>(call.count);
    const auto part = static_cast<int>(call.part());
    const auto root = static_cast<int>(call.root);
    const bool in_place = way == 0;
    std::byte* const a = a_.data();
    std::byte* const b = b_.data();
    std::byte* const result = in_place ? a : b;
    void* const from = in_place ? MPI_IN_PLACE : static_cast<void*>(a);
    switch (call.kind) {
      case CollectiveKind::all_reduce:
        return {a, result, [=] { MPI_Allreduce(from, result, count, type, op, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::reduce_scatter:
        return {a, result, [=] { MPI_Reduce_scatter_block(from, result, part, type, op, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::all_gather:
        return {in_place ? a + call.rank * call.part() * size_bytes(call.dtype) : a, result,
                [=] { MPI_Allgather(from, part, type, result, part, type, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::broadcast:
        return {a, a, [=] { MPI_Bcast(a, count, type, root, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::reduce:
        return {a, b, [=] { MPI_Reduce(a, b, count, type, op, root, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::gather:
        return {a, b, [=] { MPI_Gather(a, part, type, b, part, type, root, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::scatter:
        return {a, b, [=] { MPI_Scatter(a, part, type, b, part, type, root, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::all_to_all:
        return {a, b, [=] { MPI_Alltoall(a, part, type, b, part, type, MPI_COMM_WORLD); }, ""};
      case CollectiveKind::sendrecv: {
        const auto next = static_cast<int>(call.next());
        const auto previous = static_cast<int>(call.previous());
        return {a, b,
                [=] {
                  MPI_Sendrecv(a, count, type, next, 0, b, count, type, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                },
                ""};
      }
    }
    fail(ErrorKind::bug, "unknown collective");
  }

 private:
  PlainVector a_;
  PlainVector b_;
};

int run(const std::string& control, std::size_t max_bytes) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  RankLink link(control, static_cast<std::size_t>(rank));
  return run_rank(link, [&] {
    MpiRank library(max_bytes);
    link.ready();
    serve_rank(link, library);
    MPI_Finalize();  // while the link can still end the process
  });
}

}  // namespace
}  // namespace psring::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("psring: a part of psring-bench, which starts it\n", stderr);
    return psring::exit_status(psring::ErrorKind::usage);
  }
  MPI_Init(&argc, &argv);
  try {
    return psring::bench::run(argv[1], std::strtoull(argv[2], nullptr, 10));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "psring: %s\n", error.what());
    return psring::exit_status(psring::ErrorKind::peer_lost);
  }
}
