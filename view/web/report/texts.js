// All texts of the page, in English and in Chinese.

export const kTexts = {
  en: {
    title: "psring report", language: "中文", dark: "Dark", light: "Light", save: "Save as", all: "All strategies", show: "Show",
    strategy: "strategy", process: "process", step: "step", seconds: "seconds", worker: "worker", server: "server",
    table: "All figures as a table", run: "run", runsNote: (n) => `${n} runs of each row: the tables at the top show medians, the figures show run 1.`,
    nav: { ran: "What ran", loss: "Loss", time: "Time", bytes: "Bytes", memory: "Memory", recoveries: "Recoveries", next: "What to try" },

    ranTitle: "What ran", command: "command", version: "version", hosts: "hosts", processors: "processors", link: "link", seed: "seed",
    model: "model", data: "data", noLink: "not shaped", unfinished: "not finished", shared: "memory, or TCP as it is",
    others: "other programs", othersText: (n) => `took ${n} processors meanwhile`,
    glance: "At a glance", samples: "samples/s", tokens: "tokens/s", msStep: "ms/step", exposedMs: "exposed ms", workerPeak: "worker peak", serverPeak: "server peak",
    equal: "equal", accuracy: "accuracy", perplexity: "perplexity", finalLoss: "final loss", testLoss: "test loss", losses: "losses",
    badges: { "=": "the bits of single with as many virtual workers", "≈": "the same arithmetic in another order", inexact: "the result depends on timing, or on compression", "✗": "differs, and should not", "—": "not compared" },
    ownTitle: "Who owns which range",
    ownCaption: "Each bar is one unit, from its first element to its last; all units are cut alike. Solid: what a process keeps. Hatched: whole units for a while, dropped after use. Empty: nothing. P parameters, G gradients, OS optimizer state.",
    kept: "kept", passing: "for a while", more: (n) => `… ${n} more alike`, noOwnership: (list) => `Not drawn, as this program does not know the axes: ${list}`,

    lossTitle: "Loss and quality", lossNote: "Training loss: the mean over all workers' samples. Curves that are the same share a line, as dashes.",
    thinned: (n) => `Each point is the mean of up to ${n} steps.`,
    lossSteps: "Loss over steps", lossSeconds: "Loss over seconds", lossSecondsNote: "Seconds begin with the first step; evaluations count, start-up does not.",
    quality: (name) => `Test ${name} over steps`, loss: "loss", keyboard: "Arrow keys move the cursor of a selected figure.",

    timeTitle: "A step's time",
    timeCaption: "Medians over all steps. The line is the median step, the whisker reaches from the 10th to the 90th percentile of steps; an arrow: beyond the edge. The diamond is the predicted exposed communication, after the time of computing.",
    timeFigure: "A step of each worker", computing: "not waiting", exposed: "exposed communication", predictedExposed: "predicted exposed", median: "median", p10: "p10", p90: "p90",
    stepMs: "step ms", busyMs: "computing ms",

    bytesTitle: "Bytes", bytesFigure: "Payload of the whole run", bytesCaption: "The diamond is the prediction of the formula. Start-up, flags and evaluation are counted apart.",
    direction: "direction", sent: "sent", received: "received", replicated: "replicated", measured: "measured", predicted: "predicted", difference: "difference",
    asPredicted: "as predicted", differs: "differs", notPredicted: "no prediction", servers: "servers",
    traffic: "Who sent how much to whom", trafficCaption: "Payload of the whole run with start-up and control; rows send, columns receive.", from: "from", to: "to", operation: "operation", payload: "payload", framing: "framing",

    memoryTitle: "Memory", memoryFigure: "Booked memory, peak of each category", memoryCaption: "The diamond is the sum of the predictions; activations, which have none, are added as measured. No diamond: another category has no prediction. Categories may peak at different moments.",
    category: "category", peak: "peak", rss: "RSS peak", pss: "Pss peak", pssTogether: (text) => `Pss of all processes together, at its peak: ${text}.`,
    systemNote: "RSS and Pss are the kernel's: with code, libraries and allocator. In Pss a page that n processes share counts 1/n in each.",
    memoryCurve: "Pss over time", bookedCurve: "Booked memory over time", system: "RSS and Pss of every process",
    categories: { parameters: "parameters", gradients: "gradients", optimizer: "optimizer state", activations: "activations", communication: "communication", staging: "staging" },

    recoveriesTitle: "Recoveries", recoveriesFigure: "Losses and recoveries over steps", lost: "lost", continued: "continued with step", delay: "delay s", epoch: "epoch", workersLeft: "workers", givenUp: (list) => `workers given up: ${list}`, neverCame: "did not continue",

    nextTitle: "What bounds it, and what to try next", boundBy: "bound by", tryNext: "Try", notComparable: "Times are not comparable",
    bounds: {}, translate: (text) => text,
    madeBy: "Written by", listSep: ", ",
  },
  zh: {
    title: "psring 报告", language: "English", dark: "深色", light: "浅色", save: "另存为", all: "所有策略", show: "显示",
    strategy: "策略", process: "进程", step: "步", seconds: "秒", worker: "worker", server: "server",
    table: "全部数据的表格", run: "运行", runsNote: (n) => `每行运行 ${n} 次：上方的表是中位数，各图是第 1 次运行。`,
    nav: { ran: "运行了什么", loss: "损失", time: "时间", bytes: "字节", memory: "内存", recoveries: "恢复", next: "下一步" },

    ranTitle: "运行了什么", command: "命令", version: "版本", hosts: "主机", processors: "处理器", link: "链路", seed: "种子",
    model: "模型", data: "数据", noLink: "未限速", unfinished: "未结束", shared: "内存，或原样的 TCP",
    others: "其他程序", othersText: (n) => `同时占用 ${n} 个处理器`,
    glance: "概览", samples: "样本/秒", tokens: "token/秒", msStep: "毫秒/步", exposedMs: "暴露毫秒", workerPeak: "worker 峰值", serverPeak: "server 峰值",
    equal: "相等", accuracy: "准确率", perplexity: "困惑度", finalLoss: "最终损失", testLoss: "测试损失", losses: "丢失",
    badges: { "=": "与同样多虚拟 worker 的 single 逐位相同", "≈": "相同的运算，次序不同", inexact: "结果取决于时序或压缩", "✗": "不同，而本应相同", "—": "未比较" },
    ownTitle: "谁拥有哪个区间",
    ownCaption: "每个条是一个单元，从第一个元素到最后一个；所有单元的切法相同。实心：进程一直保存的部分。斜线：短暂持有的整个单元，用后释放。空白：没有。P 参数，G 梯度，OS 优化器状态。",
    kept: "保存", passing: "短暂持有", more: (n) => `… 另有 ${n} 个，相同`, noOwnership: (list) => `未画出，因为本程序不知道它们的划分：${list}`,

    lossTitle: "损失与质量", lossNote: "训练损失：所有 worker 样本的平均值。相同的曲线共用一条线，各占一段虚线。",
    thinned: (n) => `每个点最多是 ${n} 步的平均值。`,
    lossSteps: "损失随步数", lossSeconds: "损失随秒数", lossSecondsNote: "秒数从第一步开始；包含评估，不包含启动。",
    quality: (name) => `测试${name}随步数`, loss: "损失", keyboard: "选中一张图后，用方向键移动光标。",

    timeTitle: "一步的时间",
    timeCaption: "所有步的中位数。竖线是步长的中位数，须线从第 10 到第 90 百分位；箭头表示超出边缘。菱形是预测的暴露通信，接在计算时间之后。",
    timeFigure: "每个 worker 的一步", computing: "不在等待", exposed: "暴露的通信", predictedExposed: "预测的暴露通信", median: "中位数", p10: "p10", p90: "p90",
    stepMs: "步长毫秒", busyMs: "计算毫秒",

    bytesTitle: "字节", bytesFigure: "整个运行的有效载荷", bytesCaption: "菱形是公式的预测。启动、标志和评估另计。",
    direction: "方向", sent: "发送", received: "接收", replicated: "复制", measured: "实测", predicted: "预测", difference: "差",
    asPredicted: "与预测相同", differs: "不同", notPredicted: "无预测", servers: "server 合计",
    traffic: "谁向谁发送了多少", trafficCaption: "整个运行的有效载荷，包含启动和控制；行发送，列接收。", from: "发送方", to: "接收方", operation: "操作", payload: "有效载荷", framing: "帧开销",

    memoryTitle: "内存", memoryFigure: "登记的内存，各类别的峰值", memoryCaption: "菱形是各预测之和；激活值没有预测，按实测计入。没有菱形：还有别的类别没有预测。各类别的峰值可能在不同时刻。",
    category: "类别", peak: "峰值", rss: "RSS 峰值", pss: "Pss 峰值", pssTogether: (text) => `所有进程的 Pss 之和的峰值：${text}。`,
    systemNote: "RSS 和 Pss 由内核统计，包含代码、库和分配器。n 个进程共享的页在每个进程的 Pss 中计 1/n。",
    memoryCurve: "Pss 随时间", bookedCurve: "登记的内存随时间", system: "每个进程的 RSS 和 Pss",
    categories: { parameters: "参数", gradients: "梯度", optimizer: "优化器状态", activations: "激活值", communication: "通信", staging: "暂存" },

    recoveriesTitle: "恢复", recoveriesFigure: "丢失与恢复（按步）", lost: "丢失", continued: "从此步继续", delay: "延迟（秒）", epoch: "成员期", workersLeft: "worker 数", givenUp: (list) => `放弃的 worker：${list}`, neverCame: "没有继续",

    nextTitle: "瓶颈是什么，下一步试什么", boundBy: "瓶颈", tryNext: "可以试", notComparable: "时间不可比较",
    bounds: { compute: "计算", "slowest worker": "最慢的 worker", processors: "处理器", memory: "内存", "worker link": "worker 的链路", "server link": "server 的链路", server: "server", latency: "延迟" },
    translate: (text) => kPatterns.reduce((done, [pattern, chinese]) => done.replace(pattern, chinese), text),
    madeBy: "生成：", listSep: "，",
  },
};

// What compare says in English; a sentence that is not here stays in English.
const kPatterns = [
  [/\bcomputes for ([\d.]+) of ([\d.]+) ms/g, "$2 毫秒中有 $1 毫秒在计算"],
  [/\bwaits for ([\d.]+) of ([\d.]+) ms/g, "$2 毫秒中有 $1 毫秒在等待"],
  [/worker (\d+) computes for ([\d.]+) ms a step, the others for ([\d.]+); /g, "worker $1 每步计算 $2 毫秒，其他的 $3 毫秒；"],
  [/all wait for worker (\d+)/g, "都在等 worker $1"],
  [/nobody waits/g, "没有谁在等待"],
  [/the link alone needs ([\d.]+) ms; the step took ([\d.]+)/g, "仅链路就需要 $1 毫秒；一步用了 $2 毫秒"],
  [/a worker's link alone needs ([\d.]+) ms, a server's ([\d.]+); the step took ([\d.]+)/g, "仅 worker 的链路就需要 $1 毫秒，server 的 $2 毫秒；一步用了 $3 毫秒"],
  [/moves ([\d.e+]+) MB through memory, ([\d.]+) of ([\d.]+) ms at (\d+) GB\/s/g, "内存中搬运 $1 MB，按 $4 GB/s 占 $3 毫秒中的 $2 毫秒"],
  [/, a server works for ([\d.]+)/g, "，server 工作 $1 毫秒"],
  [/(\d+) threads? on (\d+) processors?/g, "$2 个处理器上有 $1 个线程"],
  [/other programs took ([\d.]+) of (\d+) processors?/g, "其他程序占用 $2 个处理器中的 $1 个"],
  [/a worker had no processor for (\d+) % of its time/g, "一个 worker 有 $1 % 的时间没有处理器"],
  [/fewer --workers or --servers, or more processors/g, "减少 --workers 或 --servers，或使用更多处理器"],
  [/fewer --workers, or more processors/g, "减少 --workers，或使用更多处理器"],
  [/^more processors$/g, "更多处理器"],
  [/end the other programs/g, "结束其他程序"],
  [/all processors work: more of them, or a smaller --model/g, "所有处理器都在工作：增加处理器，或减小 --model"],
  [/uses (\d+) of (\d+) processors: more --workers or --threads/g, "使用了 $2 个处理器中的 $1 个：增加 --workers 或 --threads"],
  [/uses (\d+) of (\d+) processors: more --threads/g, "使用了 $2 个处理器中的 $1 个：增加 --threads"],
  [/ps-async does not wait for it/g, "ps-async 不等待它"],
  [/ps-async, or ps with --backup-workers 1, does not wait for it/g, "ps-async 或带 --backup-workers 1 的 ps 不等待它"],
  [/a larger --global-batch: the same for more samples/g, "增大 --global-batch：同样的访问处理更多样本"],
  [/a larger --global-batch: fewer exchanges/g, "增大 --global-batch：减少交换次数"],
  [/more --servers or --server-threads, or a cheaper --optimizer/g, "增加 --servers 或 --server-threads，或使用更省的 --optimizer"],
  [/more --server-threads, or a cheaper --optimizer/g, "增加 --server-threads，或使用更省的 --optimizer"],
  [/^more --servers$/g, "增加 --servers"],
  [/--overlap on: exchange during backward/g, "--overlap on：在反向传播时交换"],
  [/--prefetch 1: parameters ahead of the pass that needs them/g, "--prefetch 1：提前取参数"],
  [/fewer, larger messages: --units block, a larger --model or --global-batch/g, "更少、更大的消息：--units block，或增大 --model 或 --global-batch"],
  [/--compute sets this time/g, "这个时间由 --compute 决定"],
  [/, (?=[其一\d])/g, "，"],
];

/// Names of processes, such as "worker 2", in the page's language.
export function processName(t, name) {
  const found = /^(worker|server) (\d+)$/.exec(name);
  if (found) return `${t[found[1]]} ${found[2]}`;
  return name === "servers" ? t.servers : name;
}
