#include <set>
#include <string_view>
#include <utility>

#include <psring/common/base/consistency.h>
#include <psring/common/base/pieces.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/net/layout_message.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/c/vector.h>
#include <psring/worker/servers/server_bytes.h>

namespace psring::c {
namespace {

/// Throws usage if the job cannot have a vector; check_options in job.cpp has refused other options.
void require_servers(const JobOptions& job) {
  if (job.servers == 0) fail(ErrorKind::usage, "psring_vector_open: the job has no servers");
  if (job.table_optimizer != JobOptions().table_optimizer)
    fail(ErrorKind::usage, "psring_vector_open: --table-optimizer {}: a vector has no tables", job.table_optimizer);
  if (job.clip_norm > 0 && parse_consistency(job.consistency).each_push_updates)
    fail(ErrorKind::usage, "psring_vector_open: --clip-norm needs bsp; each worker clips its own gradients without it");
}

/// Throws usage where the servers would refuse the layout, or a checkpoint could not tell its tensors apart.
Layout checked(Layout layout) {
  std::set<std::string_view> units;
  std::set<std::string_view> tensors;
  for (const UnitLayout& unit : layout.units) {
    if (!units.insert(unit.name).second)
      fail(ErrorKind::usage, "psring_vector_open: two units are named '{}'", unit.name);
    for (const TensorLayout& tensor : unit.tensors)
      if (!tensors.insert(tensor.spec.name).second)
        fail(ErrorKind::usage, "psring_vector_open: two tensors are named '{}'", tensor.spec.name);
  }
  try {
    net::decode_layout(net::encode(net::LayoutMessage{layout, 0, true}));
  } catch (const Error& error) {
    fail(ErrorKind::usage, "psring_vector_open: {}", error.what());
  }
  return layout;
}

}  // namespace

Vector::Vector(Membership& member, Arena& arena, std::vector<UnitSpec> units)
    : member_(member),
      arena_(arena),
      layout_((require_servers(member.job()), checked(make_layout(std::move(units), member.job().servers)))),
      consistency_(parse_consistency(member.job().consistency)),
      servers_update_(member.job().optimizer_on == "server"),
      values_(layout_.units.size()),
      gradients_(layout_.units.size()),
      units_(layout_.units.size()) {
  make_compression();
  const JobOptions& job = member.job();
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  rule_ = optim::make_optimizer(optimizers, job);
  worker::PsClient::Options options = worker::ServerAccess::options(member, arena);
  options.codec = codec_.get();
  servers_.emplace(member, layout_, std::move(options));
  client_ = &servers_->client();
}

void Vector::make_compression() {
  const JobOptions& job = member_.job();
  if (!optim::compresses(job.compress)) return;
  codec_ = optim::make_codec(job.compress, job.error_feedback);
  if (codec_ == nullptr) fail(ErrorKind::usage, "psring_vector_open: --compress {} is not for servers", job.compress);
  if (job.error_feedback) feedback_.emplace(layout_, member_.memory());
  std::vector<worker::Compressor::Part> parts;
  for (const Piece& piece : make_pieces(layout_)) parts.push_back({piece.unit, piece.range});
  compressor_.emplace(*codec_, feedback_ ? &*feedback_ : nullptr, layout_, parts, job.seed, member_.rank(),
                      member_.memory());
}

std::span<float> Vector::values(std::size_t unit) { return buffer(&Vector::values_, unit, Category::parameters); }

std::span<float> Vector::gradients(std::size_t unit) { return buffer(&Vector::gradients_, unit, Category::gradients); }

std::span<float> Vector::buffer(std::vector<Buffer> Vector::*buffers, std::size_t unit, Category category) {
  check_unit(unit);
  const MutexLock lock(memory_mutex_);
  Buffer& buffer = (this->*buffers)[unit];
  if (buffer.size_bytes() == 0)
    buffer = Buffer(layout_.units[unit].elements * sizeof(float), category, member_.memory(), &arena_);
  return buffer.as<float>();
}

void Vector::check_unit(std::size_t unit) const {
  if (unit >= layout_.units.size())
    fail(ErrorKind::usage, "unit {} of a vector of {} units", unit, layout_.units.size());
}

Elements Vector::target(std::size_t unit, float* memory) {
  if (memory != nullptr) return std::span<float>(memory, layout_.units[unit].elements);
  return servers_update_ ? values(unit) : gradients(unit);
}

ConstElements Vector::pushed(std::size_t unit, std::uint64_t step, const float* memory) {
  const ConstElements gradient = memory == nullptr ? std::span<const float>(gradients(unit))
                                                   : std::span<const float>(memory, layout_.units[unit].elements);
  return compressor_ ? compressor_->encode(unit, step, 0, gradient) : gradient;
}

void Vector::require_agreed() const {
  if (!agreed_) fail(ErrorKind::usage, "the vector was not started: call psring_vector_start or psring_vector_agree");
}

std::uint64_t Vector::agree() {
  return servers_->locked([&] {
    if (agreed_) fail(ErrorKind::usage, "the vector was started already");
    const JobOptions& job = member_.job();
    begin_checkpoints();
    // A job that resumes has its values in the servers' checkpoint.
    client_->open(job.seed, servers_update_ && job.resume.empty());
    agreed_ = true;
    for (UnitState& unit : units_) unit.due = client_->version();
    return client_->version();
  });
}

std::uint64_t Vector::start() {
  const std::uint64_t version = agree();
  if (!servers_update_) return version;
  for (std::size_t unit = 0; unit < layout_.units.size(); ++unit) begin(unit, nullptr);
  return version;
}

bool Vector::has_first_values() const { return member_.rank() == 0 && member_.job().resume.empty(); }

void Vector::begin(std::size_t unit, float* values) {
  check_unit(unit);
  servers_->locked([&] {
    require_agreed();
    if (!servers_update_) fail(ErrorKind::usage, "psring_vector_begin: the servers have no values: they only average");
    check_no_pull(unit);
    if (units_[unit].begun && has_first_values())
      fail(ErrorKind::usage, "psring_vector_begin: unit {} has its first values already", unit);
    if (units_[unit].due != client_->version())
      fail(ErrorKind::usage, "psring_vector_begin: unit {} was pushed already", unit);
    const Elements into = target(unit, values);
    // The answer to worker 0 overwrites values that may still be leaving: they are the same.
    if (has_first_values()) client_->send_initial(unit, into.as<float>());
    units_[unit].begun = true;
    client_->pull(unit, client_->version(), into, true);
    units_[unit].asked = client_->version();
  });
}

/// A worker that runs ahead of the slowest worker has to know the position of that worker before it goes on. The last
/// pull gives it.
void Vector::check_push(std::size_t unit, std::uint64_t step) const {
  require_agreed();
  check_begun(unit);
  if (finished_) fail(ErrorKind::usage, "a push after psring_vector_finish");
  const UnitState& state = units_[unit];
  if (step != state.due)
    fail(ErrorKind::usage, "a push of step {} of unit {}, where step {} is due", step, unit, state.due);
  if (!taken(unit)) fail(ErrorKind::usage, "unit {} is pushed already: wait for it first", unit);
  const bool is_first = state.due == client_->version();
  if (servers_update_ && !client_->arrived(unit))
    fail(ErrorKind::usage, "a push of unit {} before its first values have come", unit);
  if ((servers_update_ || !is_first) && consistency_.bound && (state.asked != state.due || client_->pulling(unit)))
    fail(ErrorKind::usage, "a push of step {} of unit {} before a pull of version {} has come", step, unit, state.due);
}

/// Under bsp servers keep the version that all pushes lead to, and the one before.
void Vector::check_pull(std::size_t unit, std::uint64_t version) const {
  require_agreed();
  check_no_pull(unit);
  check_begun(unit);
  const std::uint64_t due = units_[unit].due;
  const std::uint64_t first = client_->version();
  if (version == kFinalVersion && consistency_.each_push_updates) {
    if (!finished_) fail(ErrorKind::usage, "a pull of PSRING_FINAL before psring_vector_finish");
  } else if (version > due) {
    fail(ErrorKind::usage, "a pull of version {} of unit {}, whose pushes lead to version {}", version, unit, due);
  } else if (!servers_update_ && (version != due || due == first)) {
    fail(ErrorKind::usage, "a pull of version {} of unit {}: servers that only average have the mean of the last push",
         version, unit);
  } else if (consistency_.exact() && (version < first || version + 1 < due)) {
    fail(ErrorKind::usage, "a pull of version {} of unit {}, whose pushes lead to version {}: it is gone", version,
         unit, due);
  }
}

void Vector::check_begun(std::size_t unit) const {
  if (servers_update_ && has_first_values() && !units_[unit].begun)
    fail(ErrorKind::usage, "unit {} has no values yet: psring_vector_begin comes first", unit);
}

void Vector::check_no_pull(std::size_t unit) const {
  if (client_->pulling(unit)) fail(ErrorKind::usage, "unit {} is pulled already: wait for it first", unit);
}

bool Vector::taken(std::size_t unit) const {
  return units_[unit].push_is_pull ? !client_->pulling(unit) : client_->acknowledged(unit);
}

void Vector::push(std::size_t unit, std::uint64_t step, const float* from) {
  check_unit(unit);
  servers_->locked([&] {
    check_push(unit, step);
    client_->push(unit, step, pushed(unit, step, from));
    units_[unit].due = step + 1;
    units_[unit].push_is_pull = false;
  });
}

void Vector::pull(std::size_t unit, std::uint64_t version, float* into) {
  check_unit(unit);
  servers_->locked([&] {
    check_pull(unit, version);
    client_->pull(unit, version, target(unit, into));
    units_[unit].asked = version;
    units_[unit].push_is_pull = false;
  });
}

void Vector::push_pull(std::size_t unit, std::uint64_t step) {
  check_unit(unit);
  servers_->locked([&] {
    check_push(unit, step);
    check_no_pull(unit);
    client_->push_pull(unit, step, pushed(unit, step, nullptr), target(unit, nullptr));
    units_[unit].due = units_[unit].asked = step + 1;
    units_[unit].push_is_pull = true;
  });
}

bool Vector::wait(std::size_t unit, std::uint64_t version, Moment until) {
  check_unit(unit);
  const auto there = [&] {
    require_agreed();
    if (client_->has(unit, version)) return true;
    if (!client_->pulling(unit)) fail(ErrorKind::usage, "no pull brings version {} of unit {}", version, unit);
    return false;
  };
  return servers_->wait_until(there, until);
}

bool Vector::wait_pushed(std::size_t unit, Moment until) {
  check_unit(unit);
  const auto done = [&] {
    require_agreed();
    return taken(unit);
  };
  return servers_->wait_until(done, until);
}

void Vector::finish() {
  servers_->locked([&] {
    require_agreed();
    if (consistency_.each_push_updates && !finished_) {
      client_->drain();  // the frame that says so must not overtake a push
      client_->leave();
    }
    finished_ = true;
  });
}

void Vector::end() {
  const MutexLock lock(checkpoints_mutex_);
  checkpoints_.reset();
}

double Vector::take_staleness() {
  return servers_->locked([&] { return client_->take_staleness(); });
}

Vector::Moved Vector::moved() {
  using Direction = ByteLedger::Direction;
  const ByteLedger& bytes = member_.bytes();
  return {.sent = bytes.total(Direction::sent, "push").payload + bytes.total(Direction::sent, "push_pull").payload,
          .received = bytes.total(Direction::received, "values").payload};
}

Vector::Moved Vector::predict(std::size_t unit) const {
  check_unit(unit);
  Moved moved;
  for (std::size_t server = 0; server < layout_.owners; ++server) {
    moved.sent += worker::pushed_bytes(layout_, unit, server, codec_.get());
    moved.received += worker::pulled_bytes(layout_, unit, server, DType::f32);
  }
  return moved;
}

void Vector::save(std::uint64_t version) {
  const JobOptions& job = member_.job();
  if (job.checkpoint_folder().empty()) fail(ErrorKind::usage, "psring_vector_save: the job has no --checkpoint-every");
  if (!servers_update_) fail(ErrorKind::usage, "psring_vector_save: the servers have no state: they only average");
  if (consistency_.each_push_updates)
    fail(ErrorKind::usage, "psring_vector_save: without bsp workers are at different steps");
  if (feedback_) fail(ErrorKind::usage, "psring_vector_save: compression with error feedback is not saved");
  servers_->locked([&] {
    require_agreed();
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (has_first_values() && !client_->arrived(unit))
        fail(ErrorKind::usage, "psring_vector_save: unit {} does not have its first values", unit);
      if (units_[unit].due != version)
        fail(ErrorKind::usage, "psring_vector_save: version {}, where the pushes of unit {} lead to version {}",
             version, unit, units_[unit].due);
    }
    if (member_.rank() != 0 || saved_ == version) return;
    client_->save(version, 0);
    const MutexLock lock(checkpoints_mutex_);
    if (!checkpoints_) fail(ErrorKind::peer_lost, "the job has ended");
    checkpoints_->complete(version, {}, tensors());
    saved_ = version;
  });
}

}  // namespace psring::c
