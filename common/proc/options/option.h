#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <psring/common/proc/job.h>

namespace psring::options {

/// How a value is written, on the command line and in a configuration file.
enum class Form : std::uint8_t {
  text,
  whole,    ///< a whole number >= 0
  number,   ///< a decimal number
  flag,     ///< the name alone turns the option on
  on_off,   ///< on or off
  bytes,    ///< a whole number with K, M or G: 25M is 25 MiB
  derived,  ///< a text that only the whole job gives a meaning: cli/options/resolve.cpp sets the field
};

/// The field of JobOptions that holds the value; std::monostate if cli/options/resolve.cpp sets several fields, or
/// another's.
using Field =
    std::variant<std::monostate, std::string JobOptions::*, std::size_t JobOptions::*, bool JobOptions::*,
                 double JobOptions::*, std::optional<std::uint64_t> JobOptions::*, std::optional<double> JobOptions::*>;

/// The form of most options whose field has this type.
constexpr Form form_of(const Field& field) {
  constexpr Form kForms[] = {Form::text,   Form::text,  Form::whole, Form::on_off,
                             Form::number, Form::whole, Form::number};
  return kForms[field.index()];
}

// A check of one value. The error line says which values are expected, and the value that was given.

struct OneOf {
  const char* first;
  const char* second;
};
struct CountUpTo {
  std::size_t most;  ///< 1 is the least
};
struct AtMost {
  std::size_t most;                ///< 0 is the least
  const char* expected = nullptr;  ///< "0 or 1"; null: "a number up to <most>"
};
struct Seconds {
  double least;  ///< a year is the most
};
struct Positive {};
struct NotNegative {};
struct Parses {
  void (*parse)(const std::string& text);  ///< throws usage, naming the flag
};
using Check = std::variant<std::monostate, OneOf, CountUpTo, AtMost, Seconds, Positive, NotNegative, Parses>;

/// A part of training that only some strategies have.
enum class Feature : std::uint8_t {
  none,
  one_process,
  several_processes,
  servers,
  own_pushes,             ///< each worker pushes its own gradients to servers
  stale_gradients,        ///< each push is an update: --consistency ssp:K or asp
  collectives,            ///< workers exchange values with each other
  buckets,                ///< gradients travel in buckets
  gathered_parameters,    ///< a pass gathers the parameters that it needs
  gathered_from_workers,  ///< the same, from other workers
  mesh,                   ///< several workers may hold one copy of the model together
  shards_at_workers,      ///< each worker owns a range of every unit
  compressed_gradients,
};

/// A feature without which an option means nothing, and the reason for a strategy that lacks the feature. The error
/// line is "--flag VALUE: strategy NAME REASON".
struct Need {
  Feature feature = Feature::none;
  const char* reason = "";
};

/// Whether an option has an effect in a job whose workers are a user's programs, which train by themselves through the
/// C interface. Such a job refuses an option whose row does not say that.
enum class InPrograms : std::uint8_t {
  yes,
  with_servers,  ///< where the job has servers
  no,            ///< the option is one of psring's own trainer
};

/// One option of a job: a row of the table. Everything about the option is made from its row: the command line's flag,
/// the key of the configuration file, the field of the job's JSON, the strategies that leave the option out, the help
/// and the reference page.
struct Option {
  const char* name;        ///< "global-batch": the flag without dashes, and the key of a configuration file
  const char* value = "";  ///< shown in place of the value: "MIN:MAX"; "": as the form says
  const char* help = "";
  Field field = {};
  Form form = form_of(field);
  Check check = {};  ///< of the value alone; cli/ checks rules between several options
  std::array<Need, 2> needs = {};
  bool everyday = false;       ///< shown by --help; --help-all shows all options
  bool list = true;            ///< `compare` runs each value of a comma-separated list; false: a value may hold commas
  bool exchange_only = false;  ///< does not change the result of one process, which `compare` checks bits against
  const char* json = "";       ///< name in the job's JSON; "": the name, with _ in place of -
  const char* standard = nullptr;  ///< the default as a text; null: the field's default
  const char* alone = nullptr;     ///< the value if the flag is given without one; null: the flag needs a value
  InPrograms in_programs = InPrograms::no;
};

}  // namespace psring::options
