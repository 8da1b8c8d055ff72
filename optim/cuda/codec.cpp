#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/kernel_queue.h>
#include <psring/optim/codec/codes.h>
#include <psring/optim/cuda/codec.h>
#include <psring/optim/cuda/compress.h>

namespace psring::optim::cuda {
namespace {

using net::Encoding;

/// A codec on a device; the host's codec of the same kind defines sizes and encoding.
class CudaCodec final : public Codec {
 public:
  CudaCodec(std::unique_ptr<Codec> host, bool unbiased, Device& device)
      : host_(std::move(host)), unbiased_(unbiased), device_(device) {}

  Encoding encoding() const override { return host_->encoding(); }
  std::size_t bytes(std::size_t elements) const override { return host_->bytes(elements); }

  void encode(ConstElements values, const GradientId& id, Elements out) const override {
    check_sizes(out.size(), values.size());
    if (values.empty()) return;
    switch (encoding()) {
      case Encoding::bf16:
        return copy(values, Elements(out.data(), values.size(), DType::bf16, &device_));
      case Encoding::int8:
        return launched(int8_encode(queue(), values, out.data()));
      case Encoding::sign:
        return launched(sign_encode(queue(), values, out.data()));
      case Encoding::top_k: {
        const std::size_t kept = out.size() / 8;
        return launched(top_k_encode(queue(), values, kept, out.data(), scratch(top_k_scratch(values.size(), kept))));
      }
      case Encoding::random_k: {
        const std::size_t kept = out.size() / 4;
        return launched(random_k_encode(queue(), values, kept, random_places(id), id.begin,
                                        random_factor(values.size(), kept, unbiased_), out.data()));
      }
      case Encoding::dense:
        break;
    }
    fail(ErrorKind::bug, "this codec has no implementation for devices");
  }

  void decode(ConstElements in, const GradientId& id, Elements out) const override {
    check_sizes(in.size(), out.size());
    if (out.empty()) return;
    switch (encoding()) {
      case Encoding::bf16:
        return copy(ConstElements(in.data(), out.size(), DType::bf16, &device_), out);
      case Encoding::int8:
        return launched(int8_decode(queue(), in.data(), out));
      case Encoding::sign:
        return launched(sign_decode(queue(), in.data(), out));
      case Encoding::top_k:
        clear(out);
        return launched(top_k_decode(queue(), in.data(), in.size() / 8, out));
      case Encoding::random_k:
        clear(out);
        return launched(random_k_decode(queue(), in.data(), in.size() / 4, random_places(id), id.begin, out));
      case Encoding::dense:
        break;
    }
    fail(ErrorKind::bug, "this codec has no implementation for devices");
  }

 private:
  void check_sizes(std::size_t coded, std::size_t elements) const {
    if (coded != bytes(elements))
      fail(ErrorKind::protocol, "{} elements in {} bytes, {} expected", elements, coded, bytes(elements));
  }
  const psring::cuda::Queue& queue() const { return psring::cuda::queue_of(device_); }
  std::byte* scratch(std::size_t bytes) const {
    float* const floats = psring::cuda::kernel_queue_of(device_).scratch((bytes + sizeof(float) - 1) / sizeof(float));
    return reinterpret_cast<std::byte*>(floats);
  }
  static void launched(cudaError_t error) { psring::cuda::check_call(error, "a codec's kernels"); }

  const std::unique_ptr<Codec> host_;
  const bool unbiased_;
  Device& device_;
};

}  // namespace

std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback, Device& device) {
  std::unique_ptr<Codec> host = optim::make_codec(text, error_feedback);
  if (host == nullptr) return nullptr;
  return std::make_unique<CudaCodec>(std::move(host), !error_feedback, device);
}

}  // namespace psring::optim::cuda
