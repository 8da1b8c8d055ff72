#include <chrono>
#include <optional>

#include <psring/bench/exchange/psring_link.h>
#include <psring/bench/rows/row_way.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/tables/row_client.h>
#include <psring/worker/tables/table_setup.h>

namespace psring::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};

class PsringRows final : public RowWay {
 public:
  PsringRows(Kind kind, const std::string& endpoint, const std::string& key_file, int server, const Layout& layout)
      : server_(server), link_(kind, endpoint, key_file, worker::lent_bytes(layout)) {
    const TableLayout& table = layout.tables.front();
    const auto buffer = [&](std::size_t bytes, Category category) {
      return Buffer(bytes, category, memory_, &link_.arena());
    };
    width_ = table.width;
    keys_ = buffer(table.most_keys * sizeof(std::uint64_t), Category::communication);
    gradients_ = buffer(table.most_keys * table.row_bytes(), Category::gradients);
    rows_ = buffer(table.most_keys * table.row_bytes(), Category::parameters);
    worker::PsClient::Options options{
        .mark = [this](const void* at) { return link_.arena().mark(at); }, .check = {}, .op_timeout = kPatience};
    client_.emplace(link_.transport(), clock_, layout, std::move(options));
    row_client_.emplace(*client_);
    client_->open(0);
  }

  std::span<std::uint64_t> keys() override { return keys_.as<std::uint64_t>(); }
  std::span<float> gradients() override { return gradients_.as<float>(); }
  std::span<const float> rows() const override { return rows_.as<float>(); }
  void pull(std::size_t keys) override {
    row_client_->pull(0, {.keys = keys_.as<std::uint64_t>().first(keys)}, step_++,
                      Elements(rows_.as<float>().first(keys * width_)), worker::RowUse::train);
    row_client_->wait(0, step_ - 1, worker::RowUse::train);
  }
  void push(std::size_t keys) override {
    row_client_->push(0, step_ - 1, ConstElements(std::span<const float>(gradients_.as<float>().first(keys * width_))),
                      net::Encoding::dense);
    row_client_->wait_acknowledged(0);
  }

  double cpu_s() const override { return cpu_of(0) + cpu_of(server_); }

 private:
  const int server_;
  const SystemClock clock_;
  MemoryLedger memory_;
  PsringLink link_;
  std::size_t width_ = 0;
  Buffer keys_;
  Buffer gradients_;
  Buffer rows_;
  std::optional<worker::PsClient> client_;
  std::optional<worker::RowClient> row_client_;
  std::uint64_t step_ = 0;
};

}  // namespace

Layout row_layout(const RowCase& which) {
  TableLayout table{
      .name = "rows", .width = which.width, .init = {}, .most_keys = which.lookups, .most_bags = which.lookups};
  table.pieces = worker::table_pieces(table, 1);
  Layout layout;
  layout.tables.push_back(std::move(table));
  return layout;
}

std::unique_ptr<RowWay> connect_psring_rows(Kind kind, const std::string& endpoint, const std::string& key_file,
                                            int server, const RowCase& which) {
  return std::make_unique<PsringRows>(kind, endpoint, key_file, server, row_layout(which));
}

}  // namespace psring::bench
