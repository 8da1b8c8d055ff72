#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/one_table.h>
#include <psring/optim/rows/table_rules.h>

namespace psring::optim {
namespace {

TableRule rule_of(const JobOptions& job, const OptimizerRegistry& optimizers) {
  TableRule rule{.rule = optimizers.rows.make(Spec::parse("--table-optimizer", job.table_optimizer)),
                 .rows = row_rules(job),
                 .codec = make_codec(job.table_compress, false)};
  rule.lr = job.table_lr.value_or(rule.rule->default_lr());
  return rule;
}

}  // namespace

ConstElements TableRule::gradients(const TableLayout& table, std::span<const std::byte> bytes) const {
  const DType type = codec ? DType::u8 : table.type;
  return {bytes.data(), bytes.size() / size_bytes(type), type};
}

TableRules::TableRules(const JobOptions& job, const OptimizerRegistry& optimizers) : others_(rule_of(job, optimizers)) {
  for (const std::string& name : options::named_tables(job.table)) {
    try {
      named_.emplace(name, rule_of(options::options_of_table(job, name), optimizers));
    } catch (const Error& error) {
      throw error.with_context("--table " + name);
    }
  }
}

RowRules row_rules(const JobOptions& job) {
  return parse_row_rules(job.table_admit, job.table_ttl, job.table_rows, job.table_sweep);
}

RowRules row_rules(const JobOptions& job, const std::string& table) {
  row_rules(job);  // mistakes in what all tables have are not this one's
  try {
    return row_rules(options::options_of_table(job, table));
  } catch (const Error& error) {
    throw error.with_context("--table " + table);
  }
}

}  // namespace psring::optim
