#include <algorithm>
#include <random>

#include <catch2/catch.hpp>

#include <psring/server/verdict.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::server;
using Sums = Verdict::Sums;
using test::error_of;

namespace {

net::Message arriving(const net::Outgoing& frame, std::uint32_t from) {
  net::Message message{frame.header, frame.payload, {}, nullptr};
  message.header.sender_role = net::Role::server;
  message.header.sender_rank = from;
  return message;
}

Sums part(std::uint32_t rank, std::uint64_t round, std::size_t count) {
  Sums sums(count);
  for (std::size_t i = 0; i < count; ++i)
    sums[i].add(1e-30 * static_cast<double>(rank + 1) + 1e20 * static_cast<double>(round + i));
  return sums;
}

Sums total(std::uint32_t servers, std::uint64_t round, std::size_t count) {
  Sums sums(count);
  for (std::uint32_t rank = 0; rank < servers; ++rank) {
    const Sums one = part(rank, round, count);
    for (std::size_t i = 0; i < count; ++i) sums[i].merge(one[i]);
  }
  return sums;
}

}  // namespace

TEST_CASE("all shards get the exact total of each round, whatever the order of parts") {
  const auto servers = GENERATE(values<std::uint32_t>({1, 2, 3, 5}));
  std::vector<Verdict> verdicts;
  for (std::uint32_t rank = 0; rank < servers; ++rank) verdicts.emplace_back(rank, servers);
  std::mt19937 random(servers);
  for (std::uint64_t round = 0; round < 6; ++round) {
    const std::size_t count = 1 + round % 3;  // clipping has one sum, a layerwise rule many
    const Sums expected = total(servers, round, count);
    std::vector<std::uint32_t> order(servers);
    for (std::uint32_t rank = 0; rank < servers; ++rank) order[rank] = rank;
    std::shuffle(order.begin(), order.end(), random);
    std::optional<Sums> at_first;
    std::vector<net::Outgoing> totals;
    for (const std::uint32_t rank : order) {
      std::vector<net::Outgoing> out;
      auto got = verdicts[rank].contribute(part(rank, round, count), rank == 0 ? totals : out);
      if (rank > 0) {
        CHECK_FALSE(got);
        REQUIRE(out.size() == 1);
        CHECK(out[0].to == net::Peer{net::Role::server, 0});
        CHECK(out[0].header.step == round);
        got = verdicts[0].on_message(arriving(out[0], rank), totals);
      }
      if (got) at_first = got;
      CHECK(at_first.has_value() == (rank == order.back()));
    }
    CHECK((at_first == expected));
    REQUIRE(totals.size() == servers - 1);
    for (const net::Outgoing& frame : totals) {
      std::vector<net::Outgoing> none;
      CHECK((verdicts[frame.to.rank].on_message(arriving(frame, 0), none) == expected));
      CHECK(none.empty());
    }
  }
}

TEST_CASE("what is not due is refused and changes nothing") {
  Verdict first(0, 3);
  Verdict second(1, 3);
  Verdict third(2, 3);
  std::vector<net::Outgoing> from_second;
  std::vector<net::Outgoing> from_third;
  std::vector<net::Outgoing> totals;
  const auto refused = [&](Verdict& verdict, const net::Message& message) {
    error_of(ErrorKind::protocol, [&] { verdict.on_message(message, totals); });
  };
  second.contribute(part(1, 0, 2), from_second);
  third.contribute(part(2, 0, 2), from_third);
  first.on_message(arriving(from_second[0], 1), totals);
  refused(first, arriving(from_second[0], 1));  // twice
  refused(first, arriving(from_third[0], 3));   // there is no server 3
  refused(first, arriving(from_third[0], 0));   // itself
  net::Message message = arriving(from_third[0], 2);
  message.header.step = 1;
  refused(first, message);
  message = arriving(from_third[0], 2);
  message.header.sender_role = net::Role::worker;
  refused(first, message);
  message = arriving(from_third[0], 2);
  message.payload = message.payload.first(optim::ExactSum::kBytes);
  refused(first, message);
  message.payload = message.payload.first(optim::ExactSum::kBytes - 1);
  refused(first, message);
  message.payload = {};
  refused(first, message);
  CHECK_FALSE(first.on_message(arriving(from_third[0], 2), totals));
  CHECK((first.contribute(part(0, 0, 2), totals) == total(3, 0, 2)));
  REQUIRE(totals.size() == 2);

  Verdict idle(1, 3);
  refused(idle, arriving(totals[0], 0));    // it has contributed nothing
  refused(second, arriving(totals[0], 2));  // not from server 0
  CHECK((second.on_message(arriving(totals[0], 0), totals) == total(3, 0, 2)));
  refused(second, arriving(totals[0], 0));
}

TEST_CASE("in a new epoch a round begins anew, and server 0 tells the last total again to who did not hear it") {
  Verdict first(0, 3);
  Verdict second(1, 3);
  Verdict third(2, 3);
  std::vector<net::Outgoing> parts;
  std::vector<net::Outgoing> totals;
  const auto begin_epoch = [&] {
    for (Verdict* verdict : {&first, &second, &third}) verdict->begin_epoch();
    parts.clear();
    totals.clear();
  };
  second.contribute(part(1, 5, 1), parts);
  CHECK_FALSE(first.contribute(part(0, 5, 1), totals));
  CHECK_FALSE(first.on_message(arriving(parts[0], 1), totals));
  begin_epoch();  // parts are not added twice, and no shard waits for a total that it did not ask for
  third.contribute(part(2, 0, 2), parts);
  second.contribute(part(1, 0, 2), parts);
  CHECK_FALSE(first.on_message(arriving(parts[0], 2), totals));
  CHECK_FALSE(first.on_message(arriving(parts[1], 1), totals));
  CHECK((first.contribute(part(0, 0, 2), totals) == total(3, 0, 2)));
  REQUIRE(totals.size() == 2);
  const net::Message lost = arriving(totals[0], 0);
  CHECK((second.on_message(lost, parts) == total(3, 0, 2)));
  third.begin_epoch();
  error_of(ErrorKind::protocol, [&] { third.on_message(arriving(totals[1], 0), parts); });
  begin_epoch();  // the third shard repeats a round that the others have finished
  third.contribute(part(2, 0, 2), parts);
  CHECK_FALSE(first.on_message(arriving(parts[0], 2), totals));
  REQUIRE(totals.size() == 1);
  CHECK(totals[0].to == net::Peer{net::Role::server, 2});
  CHECK((third.on_message(arriving(totals[0], 0), parts) == total(3, 0, 2)));
  parts.clear();
  totals.clear();  // all continue with the next round
  second.contribute(part(1, 1, 1), parts);
  third.contribute(part(2, 1, 1), parts);
  first.contribute(part(0, 1, 1), totals);
  CHECK_FALSE(first.on_message(arriving(parts[0], 1), totals));
  CHECK((first.on_message(arriving(parts[1], 2), totals) == total(3, 1, 1)));
  net::Message older = arriving(parts[0], 1);
  older.header.step = 0;
  error_of(ErrorKind::protocol, [&] { first.on_message(older, totals); });
}

TEST_CASE("a sum that is not finite stays so over the wire") {
  Verdict first(0, 2);
  Verdict second(1, 2);
  std::vector<net::Outgoing> out;
  Sums bad(1);
  bad[0].add(std::numeric_limits<double>::quiet_NaN());
  second.contribute(bad, out);
  std::vector<net::Outgoing> totals;
  first.contribute(part(0, 0, 1), totals);
  const auto sums = first.on_message(arriving(out[0], 1), totals);
  REQUIRE(sums);
  CHECK(std::isnan((*sums)[0].value()));
}
