// Figures whose data the runs did not record, with the option that records it.

import { h } from "../common/dom.js";
import { section } from "../common/parts.js";

export function absent(ctx) {
  const { t } = ctx;
  const any = (holds) => ctx.rows.some((row) => holds(row.run, row));
  const lines = [
    [any((run) => run.evaluations.step.length > 1), t.absent.quality],
    [any((run) => run.trace), t.absent.trace],
    [any((run) => run.workers?.some((worker) => worker.predicted_exposed_comm_s != null)), t.absent.exposed],
    [any((_, row) => row.compare), t.absent.compare],
    [ctx.doc.sweeps.length > 0, t.absent.sweeps],
    [any((run) => run.summary?.staleness?.length), t.absent.staleness],
    [any((run) => run.recoveries.length > 0), t.absent.recoveries],
  ].filter(([recorded]) => !recorded).map(([, text]) => text);
  if (lines.length === 0) return null;
  return section("absent", t.absentTitle, h("ul", {}, lines.map(([what, option]) => h("li", {}, `${what}${t.colon}`, h("code", {}, option)))));
}
