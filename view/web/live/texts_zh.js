// The page's texts in Chinese.

export const zh = {
  title: "psring 实时", language: "English", dark: "深色", light: "浅色", save: "另存为",
  nav: { curves: "曲线", workers: "worker", servers: "server", links: "链路", staleness: "异步", recoveries: "恢复" },
  units: { s: "秒", min: "分", h: "小时", d: "天" }, ms: "毫秒", stop: "。", listSep: "；",
  worker: "worker", server: "server", servers: "server", step: "步", seconds: "秒", loss: "损失",

  phases: { starting: "启动中", training: "训练中", recovering: "正在从丢失中恢复", done: "已完成", failed: "已失败" },
  connection: {
    connecting: () => "正在连接……",
    open: () => "已连接：每秒收到新的状态。",
    ended: () => "运行已结束。",
    lost: (at) => at ? `连接已断开，正在重试。最后一次状态收到于 ${at}。` : "没有连接，正在重试。",
    crowded: (at) => `服务器的观看者已满。本页每隔几秒查询一次状态；最后一次收到于 ${at}。`,
    refused: () => "服务器拒绝了令牌。请打开 psring 打印的地址；每次运行的地址不同。",
    unreadable: () => "服务器发送的状态无法读取。请重新加载本页。",
  },
  workersCount: (n) => `${n} 个 worker`, serversCount: (n) => `${n} 个 server`, batchOf: (n) => `全局批大小 ${n}`,
  command: "命令", progress: "进度", ofSteps: (step, steps) => `${step} / ${steps}`,
  samples: "样本/秒", tokens: "token/秒", left: "剩余时间", elapsed: "已训练",

  curvesTitle: "损失与速度", overSteps: "按步数", overSeconds: "按时间", keyboard: "选中一张图后，用方向键移动光标。",
  figures: { loss: "损失", quality: "测试集上的质量", speed: "每秒样本数，所有 worker", "step-time": "一步的时间，各 worker 的平均" },
  withoutFirst: "不含第一步，因为它包括启动；CSV 文件中有这一步。",
  trainingLoss: "训练", testLoss: "测试", test_accuracy: "测试准确率", test_perplexity: "测试困惑度", test: (name) => `测试 ${name}`, stepTime: "整步", exposed: "暴露的通信",

  workersTitle: "各 worker", lag: "领先量", lastStep: "上一步", waits: "等待谁", memory: "内存", sent: "发送", received: "接收", seen: "最后活动", staleness: "陈旧度",
  place: "位置", copy: "副本", stage: "阶段", tensorRank: "张量 rank", comma: "，", bubble: "气泡", bubbleKey: "气泡：该阶段等待其他阶段",
  compute: "计算", rest: "其他", order: "排序：", orders: { rank: "按编号", lag: "按领先量", step_s: "按每步耗时" },
  workersCaption: "领先量：比最慢的 worker 领先多少步。内存：登记的参数、梯度、优化器状态、激活值和通信的字节数。条的长度相对于该列的最大值。",
  nobodyWaits: "现在没有 worker 在等待。", waitingNow: (n, all) => `现在 ${all} 个 worker 中有 ${n} 个在等待`, mostFor: (n, whom) => `，其中 ${n} 个在等 ${whom}`,
  waitsFor: (whom, operation, since) => `${[whom, operation].filter(Boolean).join("：")}，已 ${since}`,
  operations: { wait: "集合通信", acquire: "参数", "acquire rows": "行", "wait for input": "输入", "wait for gradient": "梯度", "wait for send": "发送", "sum of shared tensors": "共享张量" }, ago: (text) => `${text}前`,
  categories: { parameters: "参数", gradients: "梯度", optimizer: "优化器状态", activations: "激活值", communication: "通信", index: "行索引" },

  serversTitle: "各 server", busy: "负载", updates: "更新次数", rows: "行数", serversCaption: "负载：最近一秒中 server 处理帧的时间所占的比例。",

  linksTitle: "链路", linksFigure: "现在谁向谁发送，字节/秒", linksCaption: "行发送，列接收；w 是 worker，s 是 server。颜色越深，流量越大。",
  from: "发送方", to: "接收方", operation: "操作", rate: "速率", payload: "累计", retransmissions: "重发", busiest: (n) => `最忙的 ${n} 条链路`,
  resent: (n) => `重发了 ${n} 帧。`, notResent: "这次运行不确认帧，因此没有重发。",

  stalenessTitle: "异步", stalenessFigure: "梯度的陈旧度，各 worker 的平均", missed: "错过的更新",
  stalenessCaption: "从 worker 拉取参数到用它的梯度更新之间，其他 worker 完成的更新次数。",

  recoveriesTitle: "丢失与恢复", recoveriesFigure: "丢失（按训练时间）", recoveriesCaption: "叉号是丢失，其后的色带是作业继续之前的时间。",
  at: "时刻", lost: "丢失了什么", continued: "从此步继续", delay: "延迟（秒）", notYet: "尚未",

  absentTitle: "这次运行没有记录：",
  absent: { live: "谁在等谁、server 负载、链路", evaluations: "质量（--eval-every K）" },
};
