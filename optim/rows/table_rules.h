#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/optimizers.h>
#include <psring/optim/rows/row_rule.h>
#include <psring/optim/rows/row_rules.h>

namespace psring::optim {

/// How the rows of a table are trained.
struct TableRule {
  std::unique_ptr<RowRule> rule;
  double lr = 0;
  RowRules rows = {};            ///< when keys get rows, and when rows leave
  std::unique_ptr<Codec> codec;  ///< encodes each row's gradient by itself; null: gradients travel in the table's type

  net::Encoding encoding() const { return codec ? codec->encoding() : net::Encoding::dense; }
  /// Returns the bytes of one row's gradient on the wire.
  std::size_t gradient_bytes(const TableLayout& table) const {
    return codec ? codec->bytes(table.width) : table.row_bytes();
  }
  /// Returns a number of rows' gradients, of which these are the bytes on the wire: encoded ones are elements of u8.
  ConstElements gradients(const TableLayout& table, std::span<const std::byte> bytes) const;
};

/// The rules of a job's tables: those of --table-optimizer and the other options for all tables, but where --table
/// names a table of its own.
class TableRules {
 public:
  /// Throws usage.
  TableRules(const JobOptions& job, const OptimizerRegistry& optimizers);
  /// All tables have this rule.
  explicit TableRules(TableRule rule) : others_(std::move(rule)) {}

  const TableRule& of(std::string_view table) const {
    const auto named = named_.find(table);
    return named == named_.end() ? others_ : named->second;
  }

 private:
  TableRule others_;
  std::map<std::string, TableRule, std::less<>> named_;
};

/// Returns when keys get rows, and when rows leave, by the options that all tables without own ones have. Throws usage.
RowRules row_rules(const JobOptions& job);

/// The same of one table; an error in the options of its own names it.
RowRules row_rules(const JobOptions& job, const std::string& table);

}  // namespace psring::optim
