const stage3 = "按这个策略，本进程只保存每个单元的一部分参数";

function sends(f) {
  const late = f.queued ? `链路正忙：消息在 ${f.queued} 毫秒后发出。` : "";
  const why = {
    all_gather: f.base.parameters === "whole" ? "各所有者更新了自己的区间，现在每个 worker 都需要完整的单元。" : `每个 worker 只拥有单元的 1/${f.parts}，而计算需要完整的单元。`,
    reduce_scatter: `梯度相加，最后每个 worker 得到自己那 1/${f.parts} 的平均值。`,
    all_reduce: f.unit ? "每个 worker 都需要所有 worker 梯度的同一个平均值。" : "分担一层的各个 worker 把各自算出的部分相加，并等待总和。",
    message: !f.inMesh ? "worker 压缩了自己在这一区间的梯度，发给所有者，由它相加。" : "一个阶段把激活值发送给下一阶段，或把激活值的梯度发送给上一阶段，然后继续计算。",
    push: "单元归 server 所有：它收集梯度并运行优化器。",
    push_pull: "单元归 server 所有：它收集梯度，运行优化器，再返回新的参数。",
    pull: "worker 向所有者请求参数。",
    values: f.frame.exchange ? "server 已有这个回答所等待的内容，返回单元的新参数。" : "worker 请求了当前的参数。",
    rows_pull: "worker 需要它的 batch 的行：每个不同的键只说一次，发给拥有该键所在桶的 server。",
    rows: f.frame.exchange ? "server 按键的次序返回所请求的行；键不再传回。" : "worker 请求了只读的行。",
    rows_push: "这些行的梯度按请求的次序传回，所以键不必再发。所有 worker 的梯度到齐后，server 才更新。",
    broadcast: "控制消息：所有 worker 收到相同的值或相同的决定。",
    barrier: "控制消息：到齐之前谁也不继续。",
    layout: "控制消息：第一步之前，worker 和 server 核对模型的划分。",
  }[f.frame.name];
  return [`${f.who} 向 ${f.other} 发送 ${f.operation}${f.unit ? ` ${f.unit}` : ""}，${f.size}。`, (why ? `原因：${why}` : "") + late];
}

function updates(f) {
  if (f.parts > 1) return `只更新自己拥有的 1/${f.parts}，其余部分由其他 ${f.isServer ? "server" : "worker"} 同时更新。`;
  return f.isServer ? "完整的单元归这个 server 所有，新的参数返回给 worker。" : "所有 worker 的平均梯度相同，所以更新也相同。";
}

function begins(f) {
  switch (f.e.name) {
    case "step": return [`${f.who} 开始第 ${f.e.step} 步。`, "一步包括：读取样本，前向，反向，交换梯度，更新。"];
    case "load": return [`${f.who} 读取自己的一份样本。`, "每个 worker 有自己的样本，这就是数据并行。"];
    case "acquire": return [`${f.who} 需要 ${f.unit} 的参数。`, f.base.parameters === "whole" ? "参数已在本地，除非更新还在路上。" : `原因：${stage3}，所以使用前必须先收集。`];
    case "acquire rows": return [`${f.who} 需要它的 batch 的行。`, "读到样本时就请求了这些行；前向要等最后一行到达。"];
    case "forward": return [`${f.who} 计算第 ${f.e.layer} 层（${f.unit}）的前向。`, "计算时间等于该层的运算次数除以 --gflops；其间消息继续传输。"];
    case "backward": return [`${f.who} 计算第 ${f.e.layer} 层（${f.unit}）的反向。`, "反向从最后一层到第一层，产生单元的梯度。"];
    case "update": return [`${f.who} 运行优化器${f.unit ? `，更新 ${f.unit}` : ""}。`, updates(f)];
    case "wait":
      if (f.lasts === 0) return [`${f.who} 不必等待${f.other ? ` ${f.other}` : ""}。`, "结果已经到达：通信被计算隐藏了。"];
      return [`${f.who} 等待${f.other ? ` ${f.other}` : ""}${f.lasts ? `，${(f.lasts / 1e6).toFixed(2)} 毫秒` : ""}。`, "这是暴露的通信：消息到达之前，worker 没有可计算的内容。"];
    case "wait for input": case "wait for gradient": case "wait for send":
      return [`${f.who} 等待${f.operation}，对方是 ${f.other}。`, "相邻阶段的激活值或其梯度到达之前，这个阶段无事可算。"];
    case "evaluate": return [`${f.who} 评估模型。`, "在最后一步之后用测试数据评估；这些字节不算作交换。"];
    case "push_pull": case "push": return [`${f.who} 累加 ${f.other} 的 ${f.unit} 梯度。`, "bsp 下，最后一个 worker 的梯度到达后 server 才更新；asp 下立即更新。"];
    default: return [`${f.who} 开始 ${f.operation}${f.unit ? `（${f.unit}）` : ""}${f.other ? `，对方是 ${f.other}` : ""}。`];
  }
}

function ends(f) {
  switch (f.e.name) {
    case "step": return [`${f.who} 结束第 ${f.e.step} 步。`];
    case "acquire": return [`${f.who} 已有 ${f.unit} 的参数${f.cell ? `，版本 ${f.cell.version}` : ""}。`, "版本就是参数包含的更新次数。"];
    case "acquire rows": return [`${f.who} 已有它的 batch 的行。`];
    case "wait": case "wait for input": case "wait for gradient": case "wait for send": return [`${f.who} 继续${f.other ? `：${f.other} 的消息已到` : ""}。`];
    case "update": return [`${f.who} 更新了 ${f.unit || "自己的区间"}。`, f.base.parts > 1 && f.base.parameters === "whole" ? "其余区间仍是旧版本，all-gather 会带来新的值。" : "条的颜色随版本改变。"];
    case "push_pull": case "push": return [`${f.who} 已累加 ${f.other} 的 ${f.unit} 梯度${f.cell?.added ? `（目前共 ${f.cell.added} 份）` : ""}。`];
    default: return [`${f.who} 结束 ${f.operation}${f.e.layer === undefined ? "" : `，第 ${f.e.layer} 层`}${f.unit ? `（${f.unit}）` : ""}。`];
  }
}

/// An all-gather of parameters: after an update of whole parameters, or before a pass of stage 3.
function gathers(f) {
  const { nth, of } = f.turn;
  const what = `${f.who} 启动 ${f.unit} 的 all-gather，${f.size}${of > 1 ? `：这一步共 ${of} 次，这是第 ${nth} 次` : ""}。`;
  if (f.base.parameters === "whole") return [what, "每个 worker 只更新了自己的区间，其他区间的新值由这次 all-gather 带来。"];
  if (of === 1) return [what, "计算需要完整的单元。它保留到反向结束，所以收集一次就够了。"];
  if (nth === 1) return [what, "前向需要完整的单元。前向之后释放它以节省内存，所以反向还要再收集一次。"];
  return [what, "上一遍计算之后单元已释放，而反向要用参数计算梯度：所以第 3 级收集两次，发送的字节也更多。"];
}

function event(f) {
  switch (f.e.e) {
    case "send": return sends(f);
    case "arrive": return [`${f.other} 的 ${f.operation}${f.unit ? ` ${f.unit}` : ""} 到达 ${f.who}。`];
    case "begin": return begins(f);
    case "end": return ends(f);
    case "start": if (f.turn) return gathers(f);
      return [`${f.who} 启动 ${f.operation}${f.unit ? `（${f.unit}）` : ""}${f.size ? `，${f.size}` : ""}。`, "它在后台进行；worker 只在需要结果时才等待。"];
    case "finish": return [`${f.who} 完成 ${f.operation}${f.unit ? `（${f.unit}）` : ""}。`];
    case "hold": return f.e.values === "parameters" ? [`${f.who} 为 ${f.unit} 的全部参数分配 ${f.size}。`, `原因：${stage3}；其余部分为这一遍计算而收集，用后释放。`] : [`${f.who} 为 ${f.unit} 的完整梯度分配 ${f.size}。`, "反向写出完整的梯度；归约之后只留下自己拥有的区间。"];
    case "drop": return f.e.values === "parameters" ? [`${f.who} 释放 ${f.unit} 的参数，${f.size}。`, f.turn?.nth < f.turn?.of ? "前向已用完这个单元，只留下自己拥有的区间，节省内存。代价是：反向要再收集一次。" : "这一步的最后一遍计算已用完这个单元，只留下自己拥有的区间。下一步会收集更新后的参数。"] : [`${f.who} 释放 ${f.unit} 的完整梯度，${f.size}。`, "梯度正在送往所有者，或者已经送到。"];
    case "gradient": return f.e.state === "complete" ? [`${f.who} 中 ${f.unit} 的梯度已完整。`, "单元的最后一层完成了反向，可以开始交换这个单元。"] : [`${f.who} 中 ${f.unit} 的梯度已是所有 worker 的平均值。`, "优化器可以使用它了。"];
    case "report": return [`${f.who} 报告第 ${f.e.step} 步：损失 ${f.e.loss.toFixed(4)}，等待了 ${(f.e.exposed_ns / 1e6).toFixed(2)} 毫秒。`];
    case "memory": return [`${f.who} 现在占用 ${f.sizes} 内存。`];
    case "join": return [`${f.who} 加入作业${f.e.duty === f.who ? "" : `，职责是 ${f.e.duty}`}。`];
    case "die": return [`${f.who} 死亡。`, "它内存中的一切都丢失了。协调者通知其他进程，它们继续或重新开始。"];
    case "return": return [`${f.who} 的进程重新运行。`, "它要从幸存者或检查点得到状态。"];
    default: return [f.e.e];
  }
}

/// Removes the space between two Chinese characters, where a name that is Chinese here stands in a sentence.
const tidy = (text) => text?.replace(/(?<=[\u4e00-\u9fff）]) (?=[\u4e00-\u9fff])/g, "");

const kKept = { parameters: "参数", gradients: "梯度", optimizer: "优化器状态", activations: "激活值", communication: "通信内存" };
const keptList = (list) => list.map(([name, size]) => `${size} ${kKept[name]}`).join("、");

/// One scene against the first: which memory it saves, in bytes, and what it pays for that.
function saves(f) {
  const gathersTwice = f.passes.join() === "forward,backward";
  const why = gathersTwice ? "，因为每个单元在前向之前收集，用后释放以节省内存，在反向之前再收集一次"
    : f.passes.length > 1 ? `，因为每个单元在一步中收集 ${f.passes.length} 次` : "";
  const peak = f.lower === "0 B" ? "峰值相同" : `峰值${f.isLower && f.more.length ? "只" : ""}${f.isLower ? "低" : "高"} ${f.lower}`;
  return `${f.label}：${[
    f.less.length ? `与 ${f.base} 相比，每个 worker 少保存 ${keptList(f.less)}` : "",
    f.more.length ? `峰值时多需要 ${keptList(f.more)}，所以${peak}` : f.less.length ? peak : "",
    f.factor === 1 ? `一步发送的字节相同，为 ${f.sends}` : `一步发送 ${f.sends}，是 ${f.sent} 的 ${f.factor} 倍${f.factor > 1 ? why : ""}`,
    f.waits ? `一步等待 ${f.waits.now}，而不是 ${f.waits.first}` : ""].filter(Boolean).join("；")}。`;
}

export const zh = {
  title: "psring step", language: "English", dark: "深色", light: "浅色", listSep: "，", worker: "worker", server: "server", servers: "server 合计",
  scene: "场景", beside: "并排显示", none: "无", align: "对齐方式", byPhase: "阶段", byTime: "时间", showMemory: "显示内存",
  eventOf: (at, all) => `事件 ${at} / ${all}`, position: "位置", play: "播放", pause: "暂停", speed: "每秒事件数",
  back: { event: "上一个事件", message: "上一条消息", phase: "上一个阶段", step: "上一步" },
  forward: { event: "下一个事件", message: "下一条消息", phase: "下一个阶段", step: "下一步" },
  units: { event: "事件", message: "消息", phase: "阶段", step: "步" },
  toStart: "开头", toEnd: "结尾", peak: "内存峰值", firstWait: "首次暴露的等待", timeKeys: "时间：", memoryKeys: "内存：", predict: "预测",
  atStart: "场景尚未开始。", atStartWhy: (n) => `后面有 ${n} 个事件。按右方向键，或点“播放”。`,
  phases: { start: "启动", forward: "前向", backward: "反向", update: "更新", after: "结束后" },
  phaseNow: (step, phase) => `第 ${step} 步，${phase}`,
  gridLabel: "进程与单元", timeLabel: "时间轴", step: "步", version: "版本", process: "进程", idle: "空闲", between: "在这一步中",
  lives: { absent: "未运行", dead: "已死亡", here: "" },
  extents: { whole: () => "完整", part: (n) => `1/${n}`, none: () => "无", batch: () => "batch 的行" },
  looks: { empty: "尚未计算", computing: "正在计算", complete: "自己的梯度已完整", averaged: "所有 worker 的平均值" },
  pushes: (n) => `已收 ${n}`,
  doing: (name, unit, peer, operation) => ({ forward: `前向 ${unit}`, backward: `反向 ${unit}`, update: `更新 ${unit}`, wait: peer ? `等待 ${peer}` : "等待", acquire: `需要 ${unit}`, "acquire rows": "需要行", load: "读取样本", evaluate: "评估" }[name] ?? `${operation} ${peer}`),
  operations: { all_reduce: "all-reduce", reduce_scatter: "reduce-scatter", all_gather: "all-gather", push: "push", push_pull: "push", pull: "pull 请求", values: "pull 到的参数", rows_pull: "键，表", rows: "行，表", rows_push: "行的梯度，表", layout_ok: "划分确认", aggregate: "聚合", layout: "划分", broadcast: "广播", barrier: "屏障", forward: "前向", backward: "反向", load: "读取样本", evaluate: "评估", step: "步", rows_ack: "行确认，表", send: "发送消息", recv: "接收消息", message: "消息", push_ack: "push 确认", replicate: "复制", replicated: "复制确认", state: "状态", "wait for input": "输入", "wait for gradient": "梯度", "wait for send": "发送" },
  event: (f) => event(f).map(tidy), sourceLine: (one) => `${one.file}:${one.line}，函数 ${one.function}`,
  inFlight: (n) => (n === 0 ? "没有消息在途。" : `${n} 条消息在途：`), moreMessages: (n) => `…… 另有 ${n} 条`,
  time: "虚拟时间", bytesSoFar: "所有进程至今交换的字节", predictedTotal: "全部步的预测", notPredicted: "无预测", reached: "正好达到", more: (size) => `多 ${size}，来自重做的一步`,
  memoryNow: "现在的内存", peakSoFar: "至今峰值", sentSoFar: "至今发送", memoryOf: (name) => `${name} 的内存`, milliseconds: "虚拟时间（毫秒）",
  legend: "图例", legendBars: "P 参数，G 梯度，OS 优化器状态。满条：本进程有完整的单元；短条：它拥有的部分；短横：没有。虚线框：正在填入。对于表，worker 只有它的 batch 的行：四分之一长、没有外框的条。",
  legendGradient: "G 在反向之前为空；自己的梯度完整后为浅色；成为所有 worker 的平均值后为实色。",
  legendVersion: "颜色和 v：这些值包含的更新次数。", legendArrow: "箭头是在途的消息，圆点表示走到哪里；点线：在等链路。",
  kinds: { forward: "前向", backward: "反向", update: "更新", other: "其他工作", wait: "等待", transfer: "传输" },
  categories: { parameters: "参数", gradients: "梯度", optimizer: "优化器状态", activations: "激活值", communication: "通信", index: "行索引" },
  keys: "按键：← → 事件，Shift + ← → 阶段，Ctrl + ← → 消息，空格 播放和暂停，Home 和 End，m 内存峰值，w 首次暴露的等待，k 终止所示内存的进程，c 最近的集合通信的计划，[ 和 ] 它的上一轮和下一轮，Esc 关闭计划或测验。",
  command: "生成场景的命令", failed: "作业失败", predictedLine: "虚线是预测。",
  ask: "接下来谁向谁发送什么？", sender: "发送方", receiver: "接收方", message: "消息", answer: "回答", show: "显示答案",
  right: "正确。", wrong: "不对。", itIs: (label) => `下一条消息是 ${label}。`, score: (good, all) => `${all} 次中答对 ${good} 次`,
  kill: (name) => `终止 ${name}`, revive: "回到未受干扰的运行", shownDeath: (name, step) => `在这次运行中，${name} 在开始第 ${step} 步时死亡。`,
  noDeath: (name) => `场景中没有 ${name} 死亡的运行。请重新录制：psring step … --kills 1 --max-restarts 1`,
  legendKill: "点击进程的名字可以终止它，并显示录制的这次死亡的运行。",
  open: "打开…", openTitle: "打开录制的场景，或把文件拖到网页上",
  notJson: (name) => `${name} 不是场景：不是 JSON。psring step --out FILE.json 写出场景。`,
  notScene: (name) => `${name} 不是场景：format 不是 "psring-scene"。psring step --out FILE.json 写出场景。`,
  newerScene: (name, version) => `${name} 的格式版本是 ${version}，本网页读取版本 1。请用更新的 psring 的网页打开。`,
  brokenScene: (name) => `${name} 已损坏：场景缺少进程、单元或事件。请重新录制。`,
  unreadable: (name) => `浏览器无法读取 ${name}。请检查文件是否存在、是否可读。`,
  openPlan: (what) => tidy(`打开 ${what} 的计划`), close: "关闭", closePlan: "关闭计划", planLabel: "rank 与分块", chunk: (c) => `块 ${c}`, colon: "：",
  planOf: (what, how, n, elements, type) => `${what}，算法 ${how}：${n} 个 rank，${elements} 个元素 ${type}`,
  round: "轮", roundBack: "上一轮", roundNext: "下一轮", roundOf: (at, all) => `第 ${at} 轮之后，共 ${all} 轮：`,
  beforeRounds: (all) => `第一轮之前，共 ${all} 轮。`, division: (n) => `所有 rank 的和除以 ${n}，得到平均值。`,
  keeps: (sent, sum) => (sum === null ? `保存 ${sent}` : `最后一个 rank 的值 ${sent} 到达；按 rank 次序相加得到 ${sum}`),
  equalsRecorded: "所有值都等于录制的值。", differs: "有的值与录制的值不同。",
  sampleLegend: "数字是块的第一个元素。下面是它包含哪些 rank 的值；短横：在这个 rank 中没有定义。",
  noSamples: "只有第一步录制了样本值。块中的 rank 表示它包含谁的值。",
  algorithms: { ring: "环", halving_doubling: "折半与倍增", doubling: "倍增", exchange: "直接交换", star: "星形", tree: "树", chain: "链" },
  algorithmSays: {
    ring: "每一轮每个 rank 向下一个 rank 发送一块。所有链路一直忙，轮数随 rank 数增加。",
    halving_doubling: "每对 rank 交换仍要相加的内容的一半，然后距离加倍；回程时收集。轮数少：rank 数的对数的两倍。",
    doubling: "每一轮中两个 rank 的距离加倍，每个 rank 拥有的内容也加倍。",
    exchange: "每个 rank 把其他 rank 需要的内容直接发给它，只有一轮。需要相加时，由接收者按 rank 次序相加。",
    star: "所有 rank 发给一个 rank，由它回答所有 rank。", tree: "有值的 rank 把值传给没有的 rank：每一轮有值的 rank 数加倍。",
    chain: "每个 rank 把值传给下一个。",
  },
  allScenes: "所有场景：内存、字节和等待", peakSum: "峰值", sendsInStep: "一步发送", gathersInStep: "一个单元的收集（按阶段）", waitsInStep: "一步中的等待",
  sentenceSep: "", goToGather: (label, nth, of) => `显示 ${label} 一步中 ${of} 次收集的第 ${nth} 次`,
  saves,
  summaryLegend: "内存是第一个 worker（或 server）在峰值时的内存。字节取所有 worker（或 server）的平均值。等待是暴露的通信，取所有 worker 的平均值，包括等待一步的新参数。通信内存存放传输途中的完整单元，例如第 2 级的梯度和第 3 级的参数；单元越多，一个单元在模型中占的比例越小。所有字节数都包括填充：一个张量占 256 个元素的整数倍，一个单元填充到各个所有者的份额相等。server 把自己那部分参数保存两份：worker 还在拉取的版本，以及正在更新的版本；只有更新必须等到整个平均梯度时（例如裁剪），它才保存平均梯度。",
  summaryCompared: (labels) => `与${labels.length > 1 ? "选项相同的第一个场景" : ""} ${labels.join(" 或 ")} 相比：↓ 绿色表示更少，↑ 琥珀色表示更多。`,
  repeats: (label) => `${label}：有进程死亡，一些步会重复，所以不与其他场景比较。`,
  notCompared: (label, base, others) => `${label}：选项与 ${base} 不同（${others.join("，")}），所以不作比较。`,
};
