// The page's texts in Chinese.

export const zh = {
  title: "psring 规划", language: "English", dark: "深色", light: "浅色", save: "另存为", colon: "：", listSep: "、", madeBy: "生成者：",
  nav: { cluster: "集群", curves: "曲线", rows: "各行", memory: "内存", start: "启动" },

  clusterTitle: "集群与作业", command: "命令", model: "模型", workers: "worker",
  meshText: (mesh) => `${mesh.workers} 个，${mesh.hosts} 台主机各 ${mesh.workers_per_host} 个${mesh.one_machine ? "，各主机共用一台机器的处理器" : ""}`,
  within: "主机内链路", between: "主机的网卡", limit: "单个进程的内存上限", best: "第一行", why: "原因",
  linkText: (rate, delay) => (delay ? `${rate}，单向延迟 ${delay}` : rate),
  leftOut: "略去", planned: "所规划的", show: "显示",

  curvesTitle: (option) => `随${option}变化的曲线`,
  curvesNote: "一条曲线是一个策略，加上它的 server 数的规则，或主机内的切分组（混合切分：group=host）。桶、预取和微批取每一点上最好的。圆圈标出所显示的两条曲线的交点。按一个名称可显示或隐藏它的曲线。",
  options: {
    hosts: "主机数", "workers-per-host": "每台主机的 worker 数", "link-within": "主机内链路", "link-between": "主机间链路", tflops: "worker 的 TFLOP/s", memory: "内存上限",
    model: "模型", servers: "server 数", "global-batch": "全局批量", "batch-size": "worker 的批量", accumulate: "微批数", bucket: "桶", prefetch: "预取",
    "shard-group": "切分组", compress: "压缩", precision: "精度", optimizer: "优化器", units: "单元",
  },
  stepFigure: "每步时间", stepAxis: "毫秒/步", stepCaption: "对数坐标。一个 server 是瓶颈，时间随 worker 数增长；s 个 server 分担它；环的字节数增加不到一倍，绕环的每一步多一次延迟。",
  rateFigure: (unit) => `每台主机每秒的${unit}`, rateCaption: "各行按此排序：独立的 server 需要自己的主机和网卡，所以算一台主机。", samples: "样本数", tokens: " token 数",
  exposedFigure: "一步中暴露的比例", exposedAxis: "占一步的 %", exposedCaption: "一步中 worker 等待通信的比例。",
  memoryFigure: "内存最多的进程", memoryCaption: "策略自身预测的记账内存。虚线：上限。", memoryAxis: "", limitName: "上限",
  crossingsTitle: "所显示曲线的交点", crossingsNone: "所显示的曲线不相交。",
  figureColumn: "图", between2: "之间", before: "之前较好", after: "之后较好", at: "约在", moreCurves: (n) => `另外 ${n} 条曲线`,

  rowsTitle: "各行", rowsFigure: "每一行的一步", rowsCaption: "最好的在前：按每台主机每秒的样本数；放不进内存的行排在最后。",
  computing: "计算", exposed: "暴露的通信", bubble: "各阶段互相等待", more: (n) => `另外 ${n} 行`,
  ofUnit: (unit, title) => `${title}${unit}`,
  columns: { label: "策略", hosts: "主机", step_s: "每步毫秒", compute_s: "计算毫秒", exposed_s: "暴露毫秒", bubble: "气泡", rate: "每秒", per_host: "每主机每秒", sent_bytes: "网卡发送", process_bytes: "内存", bound: "受限于" },
  hostsNote: "主机：worker 的和独立 server 的，各有一块网卡。网卡发送：最忙的网卡每步单向的字节数。按一个策略可看到它的命令。",
  inexact: "不精确", inexactNote: "压缩或精度改变了计算结果", tooLarge: "放不下",
  bounds: { compute: "计算", "worker link": "worker 的网卡", "server link": "server 的网卡", server: "server 的处理", "link within host": "主机内链路", latency: "延迟", bubble: "等待的阶段", processors: "主机的处理器" },

  memoryTitle: "每一行的内存", memoryRowsFigure: "每一行中内存最多的进程", memoryRowsCaption: "竖线：上限。", worker: "worker", server: "server",
  categories: { parameters: "参数", gradients: "梯度", optimizer: "优化器状态", activations: "激活值", communication: "通信", index: "行索引", staging: "暂存" },

  startTitle: "启动", startNote: (row) => `${row} 的选项，与 psring plan --out 为 psring train --config 写出的相同。`, file: "作为 --config 的文件", hostsStart: (n) => `在 ${n} 台主机上：用 --nodes 和 agent、在 Slurm 的 sbatch 内，或在 Kubernetes 上。`,
};
