// The page's texts in Chinese.

import { translate } from "./advice.js";

export const zh = {
  title: "psring 报告", language: "English", dark: "深色", light: "浅色", save: "另存为", all: "所有策略", show: "显示",
  strategy: "策略", process: "进程", step: "步", seconds: "秒", worker: "worker", server: "server",
  table: "全部数据的表格", run: "运行", runsNote: (n) => `每行运行 ${n} 次：上方的表是中位数，各图是第 1 次运行。`,
  nav: { ran: "运行了什么", owners: "谁拥有什么", loss: "损失", time: "时间", timeline: "一步", bytes: "字节", memory: "内存", sweeps: "扫描", asynchrony: "异步", recoveries: "恢复", next: "下一步", absent: "未记录" },

  ranTitle: "运行了什么", command: "命令", version: "版本", hosts: "主机", processors: "处理器", link: "链路", seed: "种子",
  model: "模型", data: "数据", noLink: "未限速", unfinished: "未结束", shared: "内存，或原样的 TCP",
  others: "其他程序", othersText: (n) => `同时占用 ${n} 个处理器`,
  glance: "概览", samples: "样本/秒", tokens: "token/秒", msStep: "毫秒/步", exposedMs: "暴露毫秒", workerPeak: "worker 峰值", serverPeak: "server 峰值",
  equal: "相等", accuracy: "准确率", perplexity: "困惑度", finalLoss: "最终损失", testLoss: "测试损失", losses: "丢失",
  badges: { "=": "与同样多虚拟 worker 的 single 逐位相同", "≈": "相同的运算，次序不同", inexact: "结果取决于时序或压缩", "✗": "不同，而本应相同", "—": "未比较" }, badgeTexts: { inexact: "不精确" },
  stepOf: (step) => `第 ${step} 步`,
  ownersTitle: "谁拥有哪个区间，谁向谁发送什么",
  ownTitle: "每个单元中各进程拥有的区间",
  ownCaption: "每行是一个进程，每列是模型的一个单元；每格从上到下是参数（P）、梯度（G）、优化器状态（OS）。实色：进程一直保存的区间。浅色：短暂持有整个单元，用后释放。空白：不保存。",
  kept: "保存", passing: "短暂持有整个单元", nothingKept: "不保存", elements: "个元素", allUnits: "所有单元", more: (n) => `… 另有 ${n} 个，相同`,
  noOwnership: (list) => `未画出，因为本程序不知道这些策略如何划分单元：${list}`,
  flowsTitle: "谁向谁发送什么", flowsCaption: "每步实测的有效载荷，不含启动、控制消息和评估；箭头越粗，字节越多。每幅图下方是所有进程对之和。", aStep: "每步",
  flowsLost: "丢失的进程所计的字节也随之丢失。",

  lossTitle: "损失与质量", lossNote: "训练损失：所有 worker 样本的平均值。相同的曲线共用一条线，各色虚线交替。",
  thinned: (n) => `每个点最多是 ${n} 步的平均值。`,
  lossSteps: "损失（按步数）", lossSeconds: "损失（按时间）", lossSecondsNote: "时间从第一步开始；包含评估，不包含启动。",
  quality: (name) => `测试${name}（按步数）`, qualitySeconds: (name) => `测试${name}（按时间）`, loss: "损失", keyboard: "选中一张图后，用方向键移动光标。",

  timeTitle: "一步的时间",
  timeCaption: "色条：所有步的中位数。竖线：每步耗时的中位数。须线：从第 10 到第 90 百分位；末端的箭头表示超出坐标轴。菱形：按预测，暴露的通信到此结束。",
  timeFigure: "每个 worker 的一步", computing: "不在等待", exposed: "暴露的通信", predictedExposed: "预测的暴露通信", median: "中位数", p10: "p10", p90: "p90",
  stepMs: "每步毫秒", busyMs: "计算毫秒",

  partsFigure: "worker 在一步中做什么", hidden: "隐藏的通信", inFlight: "传输中的通信",
  partsCaption: "所有有跟踪记录的步的中位数。竖线：整步的时长；色条未覆盖的部分是加载、记账，以及 --compute 增加的时间。细条：有传输在进行的时间；其中 worker 同时在计算的部分是隐藏的。",
  waitingOrExposed: "等待；在细条中为暴露的通信",
  waitsTitle: "谁在等谁", waitsFigure: "每步的等待时间，按所等的进程", waitsFor: (name) => `等待 ${name}`, waitsWhom: "等待谁", waitsUnknown: "未记录", waitsServers: "server",
  waitsCaption: "所有有跟踪记录的步的平均值，不含评估。在环中，worker 等待的是相邻的 worker，后者自己可能也在等一个慢的 worker。server 等待的是梯度最后到达的 worker。",
  kinds: { forward: "前向", backward: "反向", update: "更新", wait: "等待", serve: "server 的工作", device: "GPU" },
  timelineTitle: "一步的时间线", timelineFigure: (label, step, ms) => `${label}：第 ${step} 步，${ms} 毫秒`, ms: "毫秒", zoom: "缩放",
  timelineCaption: "时长为中位数的一步。每个进程的第一行是计算和等待，下方是传输中的数据。箭头是帧，从发出到到达。",
  leftOut: (n) => `省略了 ${n} 个事件。`,
  withinTitle: "一步之内逐单元的内存", wholeParameters: "收集到的参数", wholeGradients: "未归约的梯度",
  withinCaption: "一步之内，worker 在自己的区间之外持有的整个单元的字节数。背景：每个单元的前向和反向。始终保存整个单元的策略没有曲线。",

  bytesTitle: "字节", bytesFigure: "整个运行的有效载荷", bytesCaption: "菱形是公式的预测。启动、标志和评估另计。",
  direction: "方向", sent: "发送", received: "接收", replicated: "复制", measured: "实测", predicted: "预测", difference: "差",
  asPredicted: "与预测相同", differs: "不同", notPredicted: "无预测", servers: "server 合计",
  operations: { all_reduce: "all-reduce", reduce_scatter: "reduce-scatter", all_gather: "all-gather", push_pull: "推送", push: "推送", values: "更新后的参数", pull: "拉取请求", message: "样本", "start-up": "启动", leave: "离开", broadcast: "broadcast", barrier: "barrier" },
  traffic: "谁向谁发送了多少", trafficCaption: "整个运行的有效载荷，包含启动和控制；行发送，列接收。", from: "发送方", to: "接收方", operation: "操作", payload: "有效载荷", framing: "帧开销",

  formulasTitle: "公式与代入的数值", formula: "每步的公式", withNumbers: "代入数值", bytesAStep: "每步字节", steps: "步数", aWorker: "每个 worker",
  formulasNote: "n 是 worker 数，A 是微批次数，Mg 和 Mp 是全部梯度和全部参数的字节数（含填充）。只列出与该运行的预测逐字节相同的公式。",

  memoryTitle: "内存", memoryFigure: "登记的内存，各类别的峰值", memoryCaption: "菱形是各预测之和；激活值没有预测，按实测计入。没有菱形：还有别的类别没有预测。各类别的峰值可能在不同时刻。",
  category: "类别", peak: "峰值", rss: "RSS 峰值", pss: "Pss 峰值", pssTogether: (text) => `所有进程的 Pss 之和的峰值：${text}。`,
  systemNote: "RSS 和 Pss 由内核统计，包含代码、库和分配器。n 个进程共享的页在每个进程的 Pss 中计 1/n。",
  memoryCurve: "Pss（按时间）", bookedCurve: "登记的内存（按时间）", system: "每个进程的 RSS 和 Pss",
  categories: { parameters: "参数", gradients: "梯度", optimizer: "优化器状态", activations: "激活值", communication: "通信", staging: "暂存" },

  sweepsTitle: "扫描", sweepTime: (option) => `每步耗时与${option}`, sweepTimeCaption: "最慢的 worker 每步耗时的中位数；须线从最快的运行到最慢的运行。",
  sweepPredicted: "虚线：计算时间加预测的暴露通信。", sweepLink: "点线：仅最忙的链路就需要的时间。", linkAlone: "仅链路", least: "最小毫秒", most: "最大毫秒",
  options: { workers: "worker 数", servers: "server 数", bucket_bytes: "桶大小", global_batch: "全局批大小", threads: "线程数", accumulate: "微批次数", link: "链路速率" },
  sweepMemory: "worker 的参数、梯度和优化器状态", sweepMemoryCaption: "点：实测。线：公式，即完整保存的部分加上除以 n 的部分。点线：worker 很多时的极限。随 n 增加的填充只计入点中。表中的倍数：保存全部的单个进程是此时一个 worker 的多少倍。",
  limit: "极限", limitTitle: "worker 很多时节省的倍数", nTimes: "n ×",

  asynchronyTitle: "异步", stalenessFigure: "梯度的陈旧度", stalenessCaption: "从 worker 拉取参数到用它的梯度更新之间，其他 worker 完成的更新次数。",
  missedUpdates: "错过的更新", updates: "更新次数", stalenessSteps: "陈旧度（按步数）", meanStaleness: "平均陈旧度", mostStaleness: "最大", mostLag: "最大领先量", dropped: "丢弃",
  lagFigure: "领先量（按时间）", lagSteps: "步", lagCaption: "领先量：worker 结束一步时，比最慢的 worker 领先多少步。时间从第一步开始；每个 worker 的曲线在它的最后一步结束。",
  retransmitted: "重发的帧", frames: "帧数",

  recoveriesTitle: "恢复", recoveriesFigure: "丢失与恢复（按步）", recoveriesSeconds: "丢失与恢复（按时间）",
  recoveriesGap: "色带从丢失前结果得以保留的最后一步，到恢复后的第一步；数字是作业继续之前的延迟。",
  lost: "丢失", continued: "从此步继续", delay: "延迟（秒）", epoch: "成员期", workersLeft: "worker 数", givenUp: (list) => `放弃的 worker：${list}`, neverCame: "没有继续",

  nextTitle: "瓶颈是什么，下一步试什么", boundBy: "瓶颈", tryNext: "可以试", notComparable: "时间不可比较",
  compareNote: "以上只依据这次运行自己的记录。比较时还会测量处理器、内存和 server：",
  bounds: { compute: "计算", "slowest worker": "最慢的 worker", processors: "处理器", memory: "内存", "worker link": "worker 的链路", "server link": "server 的链路", server: "server", latency: "延迟", exchange: "交换" },
  translate,
  absentTitle: "未记录", colon: "：",
  absent: {
    quality: ["质量（按步数和时间）", "--eval-every K"],
    trace: ["一步的时间线、隐藏的通信、一步之内的内存", "--events on"],
    exposed: ["预测的暴露通信", "--strategy ddp --link 速率,延迟"],
    compare: ["与其他策略是否相等，以及瓶颈的全部测量", "psring compare"],
    sweeps: ["时间和内存随某个选项的变化", "psring compare --workers 2,4,8"],
    staleness: ["陈旧度与领先量", "--strategy ps-async、ps-ssp"],
    recoveries: ["丢失与恢复", "--max-restarts N、--elastic"],
  },
  madeBy: "生成：", listSep: "，",
};
