// Exercise 05: predict the bottleneck of a parameter server, then run.
#include <cmath>

#include <psring/cli/check/answers.h>
#include <psring/cli/check/jobs.h>

namespace psring::cli {
namespace {

constexpr double kTolerance = 0.2;
constexpr double kGradientBytes = 6 * 256 * 256 * 4.0;

void judge_bytes(const Submission&, const Answer& answer) {
  const double found = answer.number();
  constexpr double kExpected = 4 * kGradientBytes;
  if (found == kExpected) return;
  const Text cause = found == kGradientBytes ? Text{"that is the gradient of one worker", "那是一个 worker 的梯度"}
                     : found == 2 * kExpected
                         ? Text{"the values that go back are sent, not received", "返回的值是发送，不是接收"}
                         : Text{"the server receives the gradient M of each of the n workers",
                                "server 从 n 个 worker 各收到一个梯度 M"};
  refuse({"server_receives_bytes: {}, but one server receives {} bytes in a step; {}",
          "server_receives_bytes：{}，但一个 server 在一步中收到 {} 字节；{}"},
         found, kExpected, cause);
}

void judge_time(const Submission& submission, const Answer& answer, const char* strategy, options::Given given) {
  const double found = answer.number();
  given.insert({{"model", "gelu-mlp:dim=256,layers=6"}, {"global-batch", "8"}, {"link", "100mbit,0.1ms"}});
  const double simulated = step_seconds(submission.app, strategy, given) * 1e3;
  if (std::abs(found - simulated) <= kTolerance * simulated) return;
  const auto near = [&](double ratio) { return std::abs(found / simulated / ratio - 1) < kTolerance; };
  const Text cause =
      near(1.0 / 8) ? Text{"a link's rate counts bits, not bytes", "链路速率以比特计，不是字节"}
      : near(8) ? Text{"a byte has 8 bits; was it multiplied twice?", "一字节有 8 比特；是否乘了两次？"}
      : near(0.25) ? Text{"all four workers send at once to the same card", "四个 worker 同时发给同一块网卡"}
      : near(2)
          ? Text{"a card receives and sends at the same time", "网卡的接收与发送同时进行"}
          : Text{"which card carries the most bytes, and in which direction?", "哪块网卡传送的字节最多，是哪个方向？"};
  refuse({"{}: {:.4g} ms, but the simulated step takes {:.4g} ms; {}", "{}：{:.4g} ms，但模拟的一步需要 {:.4g} ms；{}"},
         answer.name, found, simulated, cause);
}

Question time_question(const char* name, const Text& title, std::size_t need, const char* strategy,
                       const options::Given& more) {
  return {name, title, 20,
          [=](const Submission& submission, const Answer& answer) { judge_time(submission, answer, strategy, more); },
          need};
}

}  // namespace

Exercise server_bottleneck_exercise() {
  return {5,
          "server-bottleneck",
          {"predict the bottleneck of a parameter server", "预测参数服务器的瓶颈"},
          "start.txt",
          answer_checks(
              {{"server_receives_bytes", {"bytes that one server receives", "一个 server 收到的字节"}, 20, judge_bytes},
               time_question("step_ms_1_server", {"a step with one server", "一个 server 的一步"}, 1, "ps",
                             {{"servers", "1"}}),
               time_question("step_ms_2_servers", {"a step with two servers", "两个 server 的一步"}, 2, "ps",
                             {{"servers", "2"}}),
               time_question("step_ms_4_servers", {"a step with four servers", "四个 server 的一步"}, 2, "ps",
                             {{"servers", "4"}}),
               time_question("step_ms_ring", {"a step of a ring without servers", "没有 server 的环的一步"}, 2, "ddp",
                             {{"algorithm", "ring"}})})};
}

}  // namespace psring::cli
